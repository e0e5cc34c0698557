"""The mean of the buffers of all ranks, as dense frames."""

import torch

from aquila.core.method import theta_of
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.wire import pack, unpack
from aquila.distributed.agreement import Messages, check_settings, check_stopped
from aquila.distributed.buffers import FlatBuffers
from aquila.distributed.exchange import Exchange, ExchangeError, Kind, Message
from aquila.native.checksum import crc32


def average_buffers(
    buffers: FlatBuffers, exchange: Exchange, settings: str, round_number: int
) -> Messages:
    """Replace the buffers of all ranks by their mean; return the messages of all ranks.

    Raises ExchangeError on all ranks if one has other buffers, or if a frame is damaged.
    """
    numbers = f"{buffers.length} numbers of {buffers.dtype}"
    settings = f"{settings}\na call of average_buffers with {numbers}"
    try:
        kind, body = Kind.FRAME, pack(Packet(round_number, Dense(buffers.read())))
    except ValueError as error:
        kind, body = Kind.STOPPED, f"average_buffers: {error}".encode()
    messages = exchange.gather(Message(kind, round_number, crc32(settings.encode()), body=body))
    check_stopped(messages)
    check_settings(exchange, messages, settings)
    total = torch.zeros(buffers.length, dtype=torch.float64)
    damaged: set[int] = set()
    for rank, message in messages.items():
        try:
            total += theta_of(unpack(message.body, buffers.length))
        except WireError:
            damaged.add(rank)
    if refused := set().union(*exchange.gather_sets(damaged, round_number)):
        raise ExchangeError(f"the buffers of ranks {sorted(refused)} are damaged")
    buffers.write(total / exchange.size)
    return messages
