"""How large an upload may be, so that no device alone decides where the average goes."""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from aquila.core.fleet import DeviceId
from aquila.core.method import ServerHalf
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.vector import squared_norm

LimitPolicy = Literal["reject", "clip"]
"""What happens to an upload above the limit: it counts as lost, or it is scaled down to it."""


@dataclass(frozen=True)
class NormLimit:
    """A bound on the 2-norm of an upload, and what happens above it.

    With `clip` the server applies another vector than the device sent, so it is only for methods
    whose server does not remember what devices sent; the others' memories would no longer agree.
    """

    norm: float
    policy: LimitPolicy = "reject"

    def __post_init__(self) -> None:
        if not self.norm > 0:
            raise ValueError(f"the limit on the norm of an upload must be above 0, not {self.norm}")
        if self.policy not in get_args(LimitPolicy):
            raise ValueError(
                f"the policy above the limit must be one of {', '.join(get_args(LimitPolicy))}, "
                f"not {self.policy!r}"
            )

    def check(self, half: ServerHalf[Any]) -> None:
        """Raise ValueError if the policy does not go with a method."""
        if self.policy == "clip" and half.remembers:
            raise ValueError(
                "this method's server remembers what devices sent, so uploads cannot be clipped; "
                "use the policy reject"
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
                f"upload of device {device} has norm {norm:.3g}; at most {self.norm:g} is allowed"
            )
        return replace(reply, vector=Dense(vector * (self.norm / norm)))
