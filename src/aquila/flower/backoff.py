"""Looking again and again, for a bounded time."""

import time
from collections.abc import Iterator

FIRST_PAUSE, MAX_PAUSE, PAUSE_GROWTH = 0.01, 0.5, 1.3


def backoff(seconds: float) -> Iterator[None]:
    """Yield at once, after pauses that grow, and a last time when so many seconds have passed.

    A simulated device answers within milliseconds, a deployed one within seconds.
    """
    end, pause = time.monotonic() + seconds, FIRST_PAUSE
    yield
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        pause = min(pause * PAUSE_GROWTH, MAX_PAUSE)
        yield
