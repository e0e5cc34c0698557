"""The snapshot of one rank, sent to the ranks that have no state."""

from collections.abc import Callable, Collection
from typing import TypeVar

from aquila.distributed.exchange import Exchange, ExchangeError

T = TypeVar("T")


def share_snapshot(
    exchange: Exchange,
    content: bytes,
    source: int,
    new: Collection[int],
    read: Callable[[bytes], T],
) -> T | None:
    """Send a snapshot to the ranks without a state; return what `read` makes of it there.

    Raises ExchangeError on all ranks if one of them cannot read it.

    Args:
        exchange: The links to all ranks.
        content: The snapshot on the source rank, anything on others.
        source: The rank that sends its snapshot.
        new: The ranks without a state.
        read: Reads the snapshot; ValueError if it is damaged.
    """
    received = exchange.broadcast(content, source)
    taken: T | None = None
    failed: set[int] = set()
    if exchange.rank in new:
        try:
            taken = read(received)
        except ValueError:
            failed.add(exchange.rank)
    if damaged := set().union(*exchange.gather_sets(failed, 0)):
        raise ExchangeError(
            f"ranks {sorted(damaged)} cannot read the snapshot of rank {source}; restart all ranks "
            "from their last saved state"
        )
    return taken
