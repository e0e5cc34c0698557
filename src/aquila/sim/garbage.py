"""Rare garbage collections in rounds of many short turns."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS_PER_TURN = 100
"""New objects per turn of a round after which the garbage collector runs."""


@contextmanager
def rare_collections(turns: int) -> Iterator[None]:
    """Collect garbage about once in a round of many turns.

    Orders and replies stay until the round is closed. So a collection before that frees little, but
    visits them all. Afterwards few objects of the round are left.
    """
    before = gc.get_threshold()
    if before[0]:  # 0: the collector is off
        gc.set_threshold(max(before[0], OBJECTS_PER_TURN * turns), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
