"""Part: a device without memory that compresses each tensor of its update separately."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from aquila.core.method import Oracle, Turn, Work, local_work, scheduled_alpha, theta_of
from aquila.core.packet import Codes, Packet
from aquila.core.random import Key
from aquila.core.tensors import Shapes, checksum_scalars, shapes_of
from aquila.core.vector import Vector, error_ratio
from aquila.methods.parts.mean import NoState


class TensorUpload(Protocol):
    """A compressed vector that the reader of the method can rebuild from codes."""

    def decode(self) -> Vector:
        """Return the vector that the server will use."""
        ...

    def to_codes(self) -> Codes:
        """Return the codes that a frame carries."""
        ...


@dataclass(frozen=True)
class TensorUpdateDevice:
    """Sends its update with every tensor compressed separately.

    Args:
        alpha: Step size of local steps.
        work: What the device computes.
        compress: Update, tensors of the model and step size of the round -> upload.
    """

    alpha: float
    work: Work
    compress: Callable[[Vector, Shapes, float], TensorUpload]

    def init(self, like: Vector) -> NoState:
        """Start without state."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with the compressed update; skip if it is zero."""
        loss, update = local_work(oracle, theta_of(order), self.work, self.alpha)
        if not bool(update.any()):
            return Turn(state, Packet(order.round), {"loss": loss})
        shapes = shapes_of(oracle, update)
        upload = self.compress(update, shapes, scheduled_alpha(order, self.alpha))
        notes = {"loss": loss, "error_ratio": error_ratio(update, upload.decode())}
        return Turn(state, Packet(order.round, upload.to_codes(), checksum_scalars(shapes)), notes)
