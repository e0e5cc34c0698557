"""Polling with growing pauses, until a deadline."""

import time
from collections.abc import Iterator

FIRST_PAUSE, MAX_PAUSE, PAUSE_GROWTH = 0.01, 0.5, 1.3


def backoff(seconds: float) -> Iterator[None]:
    """Yield immediately, then after growing pauses, and a last time after `seconds`.

    Short first pauses suit simulated devices, which answer within milliseconds. Deployed devices
    take seconds.
    """
    end, pause = time.monotonic() + seconds, FIRST_PAUSE
    yield
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        pause = min(pause * PAUSE_GROWTH, MAX_PAUSE)
        yield
