"""Part: dithered uploads of devices that keep nothing between rounds.

The server is `SparseMeanServer` in `parts/sparse_memory.py`.
"""

from dataclasses import dataclass

from aquila.core.method import Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.core.updates import dithered_upload
from aquila.core.vector import Vector
from aquila.methods.parts.density import DENSITY_SCALAR, positive_scalar
from aquila.methods.parts.factory import MAX_DENSITY
from aquila.methods.parts.mean import NoState


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
