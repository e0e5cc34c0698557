"""A token bucket: limits how fast a rank sends, so that slow links can be tried on one machine."""

import time
from collections.abc import Callable

from aquila.core.parameter import check_whole_number

BURST_BYTES = 2**14
"""Bytes that may be sent at once after a pause."""


class TokenBucket:
    """Delays its caller so that at most `bits_per_second` are sent on average.

    Args:
        bits_per_second: The rate of the link.
        burst_bytes: Bytes that may be sent at once after a pause.
        clock: Returns the time in seconds.
        sleep: Waits for some seconds.
    """

    def __init__(
        self,
        bits_per_second: float,
        burst_bytes: int = BURST_BYTES,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not bits_per_second > 0:
            raise ValueError(f"bits_per_second must be above 0, not {bits_per_second!r}")
        self._rate = bits_per_second / 8
        self._burst = check_whole_number("burst_bytes", burst_bytes, 0)
        self._clock, self._sleep = clock, sleep
        self._tokens, self._last = float(self._burst), clock()

    def send(self, size: int) -> None:
        """Return when the link has sent this many bytes."""
        now = self._clock()
        refilled = self._tokens + (now - self._last) * self._rate
        self._tokens, self._last = min(float(self._burst), refilled) - size, now
        if self._tokens < 0:
            self._sleep(-self._tokens / self._rate)
