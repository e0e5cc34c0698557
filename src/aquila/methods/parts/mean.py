"""Part: a server that steps along the average of the replies and remembers nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import model_orders, uploads
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.core.vector import Vector


@dataclass(frozen=True, eq=False)
class NoState:
    """State of a device that remembers nothing."""


@dataclass(frozen=True, eq=False)
class MeanState:
    """State of a server that keeps only the model."""

    theta: Vector


@dataclass(frozen=True)
class MeanServer:
    """theta <- theta - alpha * mean of the replies that arrived."""

    alpha: float

    @property
    def remembers(self) -> bool:
        """No: replies leave nothing behind but the steps of the model."""
        return False

    def init(self, theta: Vector, fleet: Fleet) -> MeanState:
        """Start from the given model."""
        return MeanState(theta)

    def model(self, state: MeanState) -> Vector:
        """Return the current model."""
        return state.theta

    def orders(
        self, state: MeanState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[MeanState, dict[DeviceId, Packet]]:
        """Send the model to every device."""
        return state, model_orders(fleet, state.theta, round_number)

    def check(self, reply: Packet) -> None:
        """Take any vector; a reply without one stands for the zero vector."""

    def update(
        self, state: MeanState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> MeanState:
        """Step along the average of the replies."""
        mean = fleet.mean(self.decode_uploads(replies), weights=dict.fromkeys(replies, 1.0))
        return MeanState((state.theta - self.alpha * mean).to(state.theta.dtype))

    def decode_uploads(
        self, replies: Mapping[DeviceId, Packet]
    ) -> Iterable[tuple[DeviceId, Vector]]:
        """Yield what those replies that carry a vector mean by it, one at a time."""
        return uploads(replies)

    def forget(
        self, state: MeanState, fleet: Fleet, device: DeviceId, replies: Iterable[Packet]
    ) -> MeanState:
        """Return the state: there is nothing to take back."""
        return state
