"""Limits on the norm of an upload, so that no single device dominates the average.

Two limits exist. `NormLimit` is a number that the operator sets. The adaptive limit follows the
norms of the fleet: it is `LIMIT_FACTOR` times the upper quartile over the devices of the largest
norm that each device sent recently. It needs `MIN_KNOWN` devices, and less than a quarter of the
fleet may be hostile.

With small participation, few devices are known at first, and more than a quarter of them may be
hostile. Until then the limit is at most `EARLY_FACTOR` times the median.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any, Literal, get_args

from aquila.core.fleet import DeviceId
from aquila.core.method import ServerHalf, has_memory
from aquila.core.packet import (
    Codes,
    Dense,
    Packet,
    SparseCodes,
    StoredUpload,
    Upload,
    WireError,
)
from aquila.core.peaks import PeakUpload
from aquila.core.vector import squared_norm

LimitPolicy = Literal["reject", "clip"]
"""An upload above the limit counts as lost (`reject`) or is scaled down to it (`clip`)."""

LIMIT_FACTOR = 30.0
"""The adaptive limit ÷ the upper quartile of the norms.

In short runs on ridge regression and digits, honest uploads reached 5 times the quartile. Local
training that diverged on single devices reached 24 times.
"""
EARLY_FACTOR = 100.0
"""The limit ÷ the lower median of the norms while few devices of the fleet are known."""
EARLY_SHARE, EARLY_DEVICES = 0.75, 32
"""Few are less than this share of the fleet, and fewer than this number."""
MIN_KNOWN = 4
"""Devices whose norms must be known before the adaptive limit applies."""
UPLOAD_DECAY = 0.995
"""Factor on a device's largest norm per upload. It halves in 138 uploads."""


@dataclass(frozen=True)
class NormLimit:
    """Largest allowed 2-norm of an upload, and the policy for uploads above it.

    With `clip` the server applies another vector than the device sent. Methods with memory do not
    allow this, because device and server would remember different vectors.
    """

    norm: float
    policy: LimitPolicy = "reject"

    def __post_init__(self) -> None:
        if not self.norm > 0:
            raise ValueError(f"the norm limit must be above 0, not {self.norm}")
        if self.policy not in get_args(LimitPolicy):
            raise ValueError(
                f"the policy of a norm limit must be one of {', '.join(get_args(LimitPolicy))}, "
                f"not {self.policy!r}"
            )

    def check(self, half: ServerHalf[Any]) -> None:
        """Raise ValueError if the policy does not work with a method."""
        if self.policy == "clip":
            check_clipping(half)

    def apply(self, device: DeviceId, reply: Packet) -> Packet:
        """Return a reply within the limit, or raise WireError."""
        norm = upload_norm(reply)
        if norm <= self.norm:
            return reply
        if self.policy == "reject":
            raise WireError(
                f"the upload of device {device} has norm {norm:.3g}, but the limit is {self.norm:g}"
            )
        return clipped(reply, self.norm)


def check_clipping(half: ServerHalf[Any]) -> None:
    """Raise ValueError if the server of a method must not change uploads."""
    if has_memory(half):
        raise ValueError(
            "uploads cannot be clipped with this method, because its server remembers what "
            "devices sent; use the policy reject"
        )


def upload_norm(reply: Packet) -> float:
    """Return the norm of the upload, 0 for a reply without one."""
    vector = reply.vector
    if vector is None:
        return 0.0
    while isinstance(vector, StoredUpload):
        vector = vector.load()
    if isinstance(vector, Codes | PeakUpload):
        return math.sqrt(vector.squared_norm())
    if isinstance(vector, SparseCodes):
        return math.sqrt(squared_norm(vector.decode_sparse()))
    return math.sqrt(squared_norm(vector.decode()))


def clipped(reply: Packet, limit: float) -> Packet:
    """Return a reply whose upload has at most this norm. It is scaled whenever it is decoded."""
    norm = upload_norm(reply)
    if reply.vector is None or norm <= limit:
        return reply
    vector, factor = reply.vector, limit / norm

    def load() -> Upload:
        return Dense(vector.decode() * factor)

    return replace(reply, vector=StoredUpload(vector.dimension, load().bits, load))


def adaptive_limit(norms: Sequence[float]) -> float:
    """Return the limit for a fleet with these largest norms per device; infinite if too few."""
    known = sorted(norm for norm in norms if norm > 0)
    return LIMIT_FACTOR * known[3 * (len(known) - 1) // 4] if len(known) >= MIN_KNOWN else math.inf


def early_limit(norms: Sequence[float]) -> float:
    """Return the limit while few devices of a fleet are known, infinite for one or for many."""
    known = sorted(norm for norm in norms if norm > 0)
    is_early = 2 <= len(known) < min(EARLY_SHARE * len(norms), EARLY_DEVICES)
    return EARLY_FACTOR * median_low(known) if is_early else math.inf


def clip_to_median(
    replies: Mapping[DeviceId, Packet], norms: Mapping[DeviceId, float]
) -> dict[DeviceId, Packet]:
    """Return replies whose uploads have at most the median norm of the round."""
    sent = [norms[device] for device, reply in replies.items() if reply.vector is not None]
    limit = median_low(sent) if sent else math.inf
    return {
        device: reply if norms[device] <= limit else clipped(reply, limit)
        for device, reply in replies.items()
    }
