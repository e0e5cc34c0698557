"""Limit on the numbers of samples that devices report, which become their weights."""

import logging
import math
from collections.abc import Sequence
from statistics import median

_LOG = logging.getLogger("aquila")


def limit_samples(samples: Sequence[int], ratio: float) -> list[int]:
    """Return the numbers of samples, at most `ratio` times their median; log what is lowered."""
    most = ratio * median(samples)
    limited = [count if count <= most else max(1, math.floor(most)) for count in samples]
    for device, (count, kept) in enumerate(zip(samples, limited, strict=True)):
        if kept < count:
            _LOG.warning(
                "device %d reports %d samples; %d count, %g times the median of the fleet",
                device, count, kept, ratio,
            )  # fmt: skip
    return limited
