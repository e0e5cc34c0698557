"""Part: a server without memory that steps along the average of the replies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Scalars, decode_summand, order_scalars, uploads
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.core.vector import Summand, Vector


@dataclass(frozen=True, eq=False)
class NoState:
    """State of a device or server that keeps nothing between rounds."""


def accept_reply(reply: Packet) -> None:
    """Accept any reply."""


def unchanged(mean: Vector) -> Vector:
    """Return the mean itself."""
    return mean


@dataclass(frozen=True)
class MeanServer:
    """Step: alpha * mean of the replies that arrived. A skip counts as zero.

    Args:
        alpha: Step size.
        decode: Returns the vector that a reply carries.
        check: Raises WireError if `decode` cannot read a reply.
        direction: Returns the vector to step along, given the mean.
    """

    alpha: float
    # repr=False: Flower compares methods of different processes by their repr
    decode: Callable[[Packet], Summand] = field(default=decode_summand, repr=False)
    check: Callable[[Packet], None] = field(default=accept_reply, repr=False)
    direction: Callable[[Vector], Vector] = field(default=unchanged, repr=False)

    @property
    def steps_along_mean(self) -> bool:
        """Whether uploads are vectors of the model, so that the step follows from their mean."""
        return self.decode is decode_summand

    def init(self, theta: Vector, fleet: Fleet) -> NoState:
        """Start without state."""
        return NoState()

    def orders(
        self, state: NoState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[NoState, dict[DeviceId, Scalars]]:
        """Send the model to every device."""
        return state, order_scalars(fleet)

    def update(
        self, state: NoState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[NoState, Vector]:
        """Step along the average of the replies, or along a direction computed from it."""
        mean = fleet.mean(uploads(replies, self.decode), replies)
        return state, self.alpha * self.direction(mean)
