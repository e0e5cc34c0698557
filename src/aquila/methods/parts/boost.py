"""Parts: a memory with a density that rises with the loss, and the turn of a device that has both.

A rising loss shows that the noise of the uploads is too large for the step size.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from aquila.core.method import Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Packet
from aquila.core.updates import MemoryUpdate
from aquila.core.vector import Vector
from aquila.methods.parts.density import DENSITY_SCALAR, positive_scalar
from aquila.methods.parts.factory import MAX_DENSITY
from aquila.methods.parts.sparse_memory import RATE_SCALAR

LOSS_RISE = 0.2
"""A device doubles its boost if its loss has risen by more than this fraction of its first loss."""
BOOST_DECAY = 0.95
"""Factor on the boost after each round without such a rise."""
MAX_BOOST = 64.0


@dataclass(frozen=True, eq=False)
class BoostedMemory:
    """State of a device: its memory, the history of its loss, and its boost.

    Attributes:
        q: The memory q_m.
        first_loss: Magnitude of the loss in the first round, 0 before it.
        lowest_loss: Lowest loss since the boost last doubled.
        density_boost: Factor on the density of the order.
    """

    q: Vector
    first_loss: float = 0.0
    lowest_loss: float = math.inf
    density_boost: float = 1.0

    def after_loss(self, loss: float) -> "BoostedMemory":
        """Return the state after a round with this loss: the boost doubles or decays."""
        first, lowest = self.first_loss or abs(loss), min(self.lowest_loss, loss)
        if loss - lowest > LOSS_RISE * first:
            lowest, boost = loss, min(MAX_BOOST, 2 * self.density_boost)
        else:
            boost = max(1.0, BOOST_DECAY * self.density_boost)
        return replace(self, first_loss=first, lowest_loss=lowest, density_boost=boost)


@dataclass(frozen=True, eq=False)
class UploadRequest:
    """What a quantizer needs: a gradient, the memory with its rate, and the density.

    Without a memory the rate is 0 and the memory is zero.
    """

    gradient: Vector
    memory: Vector
    rate: float
    density: float


def boosted_turn(
    state: BoostedMemory,
    order: Packet,
    oracle: Oracle,
    alpha: float,
    work: Work,
    quantize: Callable[[UploadRequest], MemoryUpdate | None],
    scalars: Mapping[str, float] | None = None,
) -> Turn[BoostedMemory]:
    """Return the turn of a device that sends u = Q(g - q_m) and adds η u to q_m.

    If the reply is lost, the device rolls q_m back but keeps what it learnt from the loss.

    Args:
        state: State of the device.
        order: The order, with the density and the rate η of the memory, if there is one.
        oracle: The data of the device.
        alpha: Step size.
        work: What the device computes.
        quantize: Returns the upload and the memory after it; None if nothing is sent.
        scalars: Scalars of a reply with an upload.
    """
    requested = positive_scalar(order, DENSITY_SCALAR, MAX_DENSITY)
    rate = positive_scalar(order, RATE_SCALAR, 1.0) if RATE_SCALAR in order.scalars else 0.0
    density = min(MAX_DENSITY, state.density_boost * requested)
    loss, gradient = local_work(oracle, theta_of(order), work, alpha)
    update = quantize(UploadRequest(gradient, state.q, rate, density))
    fallback = state.after_loss(loss)
    notes = {"loss": loss, "density": density}
    if update is None:
        return Turn(fallback, Packet(order.round), notes, fallback=fallback)
    notes["error_ratio"] = update.error_ratio
    reply = Packet(order.round, update.codes, scalars or {})
    return Turn(replace(fallback, q=update.memory), reply, notes, fallback=fallback)
