"""Parts: dithered uploads of devices that keep nothing between rounds, and the server for them."""

from collections.abc import Mapping
from dataclasses import dataclass

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Oracle, Scalars, Turn, Work, local_work, order_scalars, theta_of
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.core.updates import dithered_upload
from aquila.core.vector import Vector
from aquila.methods.parts.density import DENSITY_SCALAR, DITHER_DENSITY, positive_scalar
from aquila.methods.parts.factory import MAX_DENSITY
from aquila.methods.parts.mean import MeanServer, NoState


@dataclass(frozen=True)
class StatelessDitherDevice:
    """A device that keeps nothing between rounds."""

    alpha: float
    work: Work

    def init(self, like: Vector) -> NoState:
        """Start without state."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Send u = Q(g)."""
        density = positive_scalar(order, DENSITY_SCALAR, MAX_DENSITY)
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        upload = dithered_upload(gradient, density, key)
        notes = {"loss": loss, "density": density}
        if upload is None:
            return Turn(state, Packet(order.round), notes)
        codes, notes["error_ratio"] = upload
        return Turn(state, Packet(order.round, codes), notes)


@dataclass(frozen=True)
class StatelessDitherServer:
    """Steps along the mean upload, and sends devices their density.

    Args:
        alpha: Step size.
        density: Density per round; 0: that of the rule.
        every: Rounds per upload; 0: automatic.
    """

    alpha: float
    density: float
    every: int = 1

    def init(self, theta: Vector, fleet: Fleet) -> NoState:
        """Start without state."""
        return NoState()

    def orders(
        self, state: NoState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[NoState, dict[DeviceId, Scalars]]:
        """Send the model and the density to every device."""
        density = DITHER_DENSITY.of_uploads(fleet, self.density, self.every)
        return state, order_scalars(fleet, scalars={DENSITY_SCALAR: density})

    def update(
        self, state: NoState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[NoState, Vector]:
        """Step along the mean upload."""
        return MeanServer(self.alpha).update(state, fleet, replies)
