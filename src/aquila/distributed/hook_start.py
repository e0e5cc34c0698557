"""The agreement of all ranks before the first backward pass of a hook: same settings and weights.

Ranks that have loaded no state, for example because they have joined, get the snapshot of the first
rank that has: the rounds and the server's part of each bucket. Their own memories are empty. If the
server averages memories, those of all ranks start anew, because the average does not say what the
missing rank had contributed.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from aquila.core.method import has_memory
from aquila.core.state import Arrays
from aquila.distributed.agreement import check_settings, check_stopped, check_weights
from aquila.distributed.bucket_rounds import DEVICE, HookSettings
from aquila.distributed.exchange import Kind, Message
from aquila.distributed.snapshot import share_snapshot
from aquila.native.checksum import crc32
from aquila.runtime.state_file import read_state, state_to_bytes

_LOG = logging.getLogger("aquila")


@dataclass(frozen=True)
class HookStart:
    """What a rank brings to the first backward pass.

    Args:
        saved: The state that the rank has loaded, empty without one.
        weights: Checksum of its weights, 0 if they are not compared.
    """

    saved: Arrays
    weights: int


def agree_on_buckets(
    settings: HookSettings, own: HookStart, join: Callable[[Arrays], Arrays]
) -> Arrays:
    """Return the state with which this rank starts, or raise ExchangeError on all ranks.

    Args:
        settings: What the buckets share.
        own: What this rank brings.
        join: Adds empty memories to the arrays of a snapshot.
    """
    exchange = settings.exchange
    # the last line distinguishes this message from those of later backward passes
    text = f"{settings.text}\na first backward pass"
    messages = exchange.gather(
        Message(Kind.TEXT, 0, crc32(text.encode()), own.weights, flag=bool(own.saved))
    )
    check_stopped(messages)
    check_settings(exchange, messages, text)
    check_weights(messages)
    resumed = [rank for rank, message in messages.items() if message.flag]
    new = [rank for rank in messages if rank not in resumed]
    if not new or not resumed:
        return own.saved
    if has_memory(settings.method.server):
        _LOG.warning("ranks %s have no state, so all memories start anew", new)
        return {}
    shared = {name: array for name, array in own.saved.items() if f"/{DEVICE}" not in name}
    content = state_to_bytes(shared) if exchange.rank == resumed[0] else b""
    joined = share_snapshot(
        exchange, content, resumed[0], new, lambda received: join(read_state(received))
    )
    _LOG.warning("ranks %s start from the snapshot of rank %d", new, resumed[0])
    return own.saved if joined is None else joined
