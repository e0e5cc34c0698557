"""The agreement of all ranks before the first round: same settings, same weights, same round."""

import logging
from dataclasses import dataclass
from enum import IntEnum

from aquila.core.method import has_memory
from aquila.core.wire import checksum_of_vector
from aquila.distributed.agreement import (
    check_pending,
    check_rounds,
    check_settings,
    check_stopped,
    check_weights,
)
from aquila.distributed.exchange import Exchange, Kind, Message
from aquila.distributed.rank_sessions import RankSessions
from aquila.distributed.snapshot import share_snapshot
from aquila.native.checksum import crc32
from aquila.runtime.persist import restore_server, server_to_bytes

_LOG = logging.getLogger("aquila")


class Origin(IntEnum):
    """Where the state of a rank comes from."""

    NEW = 0
    """The rank has loaded no state."""
    RESUMED = 1
    """The rank has loaded its own state."""
    MODEL_ONLY = 2
    """The rank has loaded the state of another number of ranks, without the memories."""


@dataclass(frozen=True)
class StartingPoint:
    """What a rank brings to the start.

    Args:
        origin: Where the state of the rank comes from.
        settings: The settings of the rank, one per line.
        weights: Checksum of the weights of a new rank.
        pending: Steps since the last round.
    """

    origin: Origin
    settings: str
    weights: int
    pending: int = 0


def agree_on_start(exchange: Exchange, sessions: RankSessions, own: StartingPoint) -> int | None:
    """Bring all ranks to the same state, or raise ExchangeError on all of them.

    Returns None, or for a rank that got a snapshot the number of steps since its last round.

    Ranks that have loaded no state get the snapshot of the first rank that has. They start with
    empty memories. If the server averages memories, those of all ranks start anew, because the
    average does not say what the missing rank had contributed.
    """
    # the last line distinguishes this message from that of a rank that is already in a round
    settings = f"{own.settings}\na call of start"
    messages = exchange.gather(_message_of(sessions, own, settings))
    check_stopped(messages)
    check_settings(exchange, messages, settings)
    origins = {rank: Origin(message.flag) for rank, message in messages.items()}
    known = {rank: messages[rank] for rank, o in origins.items() if o is not Origin.NEW}
    check_rounds(known or messages)
    check_pending(known or messages)
    check_weights(known or messages)
    if not known:
        return None
    new = [rank for rank, origin in origins.items() if origin is Origin.NEW]
    server, source = sessions.server, min(known)
    if new:
        content = server_to_bytes(server) if exchange.rank == source else b""
        share_snapshot(
            exchange, content, source, new, lambda received: restore_server(server, received)
        )
        _LOG.warning("ranks %s start from the snapshot of rank %d", new, source)
    if Origin.MODEL_ONLY in origins.values() or (new and has_memory(server.half)):
        sessions.forget_memory()
        _LOG.warning("the ranks have changed, so all memories start anew")
    return _pending_of(messages[source]) if own.origin is Origin.NEW else None


def _message_of(sessions: RankSessions, own: StartingPoint, settings: str) -> Message:
    server = sessions.server
    weights = own.weights if own.origin is Origin.NEW else checksum_of_vector(server.theta)
    return Message(
        Kind.TEXT, server.round, crc32(settings.encode()), weights, own.origin,
        body=str(own.pending).encode(),
    )  # fmt: skip


def _pending_of(message: Message) -> int:
    return int(message.text)
