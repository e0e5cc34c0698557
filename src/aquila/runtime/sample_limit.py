"""Limit on the numbers of samples that devices report, which become their weights."""

import logging
import math
from collections.abc import Sequence
from statistics import median

_LOG = logging.getLogger("aquila")


def limit_samples(samples: Sequence[int], ratio: float) -> list[int]:
    """Return the numbers of samples, from 1 to `ratio` times their median; log what is changed."""
    most = ratio * median(max(1, count) for count in samples)
    limited = [math.floor(min(max(1, count), most)) for count in samples]
    for device, (count, kept) in enumerate(zip(samples, limited, strict=True)):
        if kept != count:
            _LOG.warning(
                "device %d reports %d samples; %d count, because the limits are 1 and %g times the "
                "median of the fleet", device, count, kept, ratio,
            )  # fmt: skip
    return limited
