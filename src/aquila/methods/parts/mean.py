"""Part: a server without memory that steps along the average of the replies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import decode_upload, model_orders, uploads
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.core.vector import Vector


@dataclass(frozen=True, eq=False)
class NoState:
    """State of a device that keeps nothing between rounds."""


@dataclass(frozen=True, eq=False)
class MeanState:
    """State of a server that keeps only the model."""

    theta: Vector


def accept_reply(reply: Packet) -> None:
    """Accept any reply."""


def unchanged(mean: Vector) -> Vector:
    """Return the mean itself."""
    return mean


@dataclass(frozen=True)
class MeanServer:
    """theta <- theta - alpha * mean of the replies that arrived. A skip counts as zero.

    Args:
        alpha: Step size.
        decode: Returns the vector that a reply carries.
        check: Raises WireError if `decode` cannot read a reply.
        direction: Returns the vector to step along, given the mean.
    """

    alpha: float
    # repr=False: Flower compares methods of different processes by their repr
    decode: Callable[[Packet], Vector] = field(default=decode_upload, repr=False)
    check: Callable[[Packet], None] = field(default=accept_reply, repr=False)
    direction: Callable[[Vector], Vector] = field(default=unchanged, repr=False)

    def init(self, theta: Vector, fleet: Fleet) -> MeanState:
        """Start from the given model."""
        return MeanState(theta)

    def orders(
        self, state: MeanState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[MeanState, dict[DeviceId, Packet]]:
        """Send the model to every device."""
        return state, model_orders(fleet, state.theta, round_number)

    def update(
        self, state: MeanState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> MeanState:
        """Step along the average of the replies, or along a direction computed from it."""
        vectors = uploads(replies, self.decode)
        mean = fleet.mean(vectors, weights=dict.fromkeys(replies, 1.0))
        step = self.alpha * self.direction(mean)
        return MeanState((state.theta - step).to(state.theta.dtype))
