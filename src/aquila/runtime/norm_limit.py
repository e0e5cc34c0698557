"""Limit on the norm of an upload, so that no single device dominates the average."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from aquila.core.fleet import DeviceId
from aquila.core.method import ServerHalf, has_memory
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.vector import squared_norm

LimitPolicy = Literal["reject", "clip"]
"""An upload above the limit counts as lost (`reject`) or is scaled down to it (`clip`)."""


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
        if self.policy == "clip" and has_memory(half):
            raise ValueError(
                "uploads cannot be clipped with this method, because its server remembers what "
                "devices sent; use the policy reject"
            )

    def apply(self, device: DeviceId, reply: Packet) -> Packet:
        """Return a reply within the limit, or raise WireError."""
        if reply.vector is None:
            return reply
        vector = reply.vector.decode()
        norm = math.sqrt(squared_norm(vector))
        if norm <= self.norm:
            return reply
        if self.policy == "reject":
            raise WireError(
                f"the upload of device {device} has norm {norm:.3g}, but the limit is {self.norm:g}"
            )
        return replace(reply, vector=Dense(vector * (self.norm / norm)))
