"""Part: the density of sparse uploads, which the server sends in its orders."""

import math
from dataclasses import dataclass

from aquila.core.fleet import Fleet
from aquila.core.packet import Packet, WireError
from aquila.methods.parts.factory import MAX_DENSITY
from aquila.methods.parts.periodic_uploads import rounds_per_upload

ENOUGH_DEVICES = 10
"""With fewer devices per round, each sends more, so that the noise of their mean stays the same."""
MIN_SENT_COORDINATES = 48
"""Lower limit for an upload of a tiny model. Below it the frame header dominates the bytes."""
DENSITY_SCALAR = "share"
"""Name of the density among the scalars of an order frame."""


@dataclass(frozen=True)
class DensityRule:
    """Density by the size d of the model and the number of devices per round.

    Noise spreads over all coordinates, but losses are steep in few directions. So the larger the
    model, the less harm the same noise does.

    Attributes:
        large_models: Density of large models, the lowest one.
        small_models: Density of small models with enough devices per round.
        per_root: Density × √d between these two.
    """

    large_models: float
    small_models: float
    per_root: float

    def density(self, fleet: Fleet) -> float:
        """Return the density for a fleet."""
        by_size = self.per_root / math.sqrt(fleet.dimension)
        density = min(self.small_models, max(self.large_models, by_size))
        devices = max(1.0, fleet.participation * fleet.effective_count(fleet.devices))
        density *= max(1.0, ENOUGH_DEVICES / devices)
        return min(MAX_DENSITY, max(density, MIN_SENT_COORDINATES / fleet.dimension))

    def of_uploads(self, fleet: Fleet, density: float, every: int) -> float:
        """Return the density of an upload.

        Args:
            fleet: The devices.
            density: Density per round; 0: that of this rule.
            every: Rounds per upload; 0: automatic.
        """
        per_round = density or self.density(fleet)
        return min(MAX_DENSITY, per_round * rounds_per_upload(every, fleet))


DITHER_DENSITY = DensityRule(large_models=0.015, small_models=0.06, per_root=30.0)
"""An upload costs about 1/1000 of a dense one for large models, and 1/200 for small ones."""

PEAK_DENSITY = DensityRule(large_models=1 / 320, small_models=1 / 50, per_root=4.8)
"""An upload costs about 1/1000 of a dense one for large models, and 1/220 for small ones."""


def positive_scalar(order: Packet, name: str, maximum: float) -> float:
    """Return a scalar of an order that must be above zero."""
    value = order.scalar(name)
    if not 0 < value <= maximum:
        raise WireError(
            f"the order of round {order.round} has {name} = {value}; "
            f"it must be above 0 and at most {maximum:g}"
        )
    return value
