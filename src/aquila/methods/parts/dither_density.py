"""Part: the default density of stochastic sparse uploads, which the server sends in its orders."""

import math

from aquila.core.fleet import Fleet
from aquila.core.packet import Packet, WireError
from aquila.methods.parts.factory import MAX_DENSITY

LARGE_MODEL_DENSITY, SMALL_MODEL_DENSITY = 0.015, 0.06
"""Limits of the default density. An upload costs about 1/1000 and 1/200 of a dense one."""
DENSITY_PER_ROOT = 30.0
"""Default density × √d between these limits.

Noise spreads over all coordinates, but losses are steep in few directions. So the larger the model,
the less harm the same noise does.
"""
ENOUGH_DEVICES = 10
"""With fewer devices per round, each sends more, so that the noise of their mean stays the same."""
MIN_SENT_COORDINATES = 48
"""Lower limit for an upload of a tiny model. Below it the frame header dominates the bytes."""
DENSITY_SCALAR = "share"
"""Name of the density among the scalars of an order frame."""


def default_density(fleet: Fleet) -> float:
    """Return the density for the size of the model and the number of devices per round."""
    by_size = DENSITY_PER_ROOT / math.sqrt(fleet.dimension)
    density = min(SMALL_MODEL_DENSITY, max(LARGE_MODEL_DENSITY, by_size))
    devices = max(1.0, fleet.participation * fleet.effective_count(fleet.devices))
    density *= max(1.0, ENOUGH_DEVICES / devices)
    return min(MAX_DENSITY, max(density, MIN_SENT_COORDINATES / fleet.dimension))


def positive_scalar(order: Packet, name: str, maximum: float) -> float:
    """Return a scalar of an order that must be above zero."""
    value = order.scalar(name)
    if not 0 < value <= maximum:
        raise WireError(
            f"the order of round {order.round} has {name} = {value}; "
            f"it must be above 0 and at most {maximum:g}"
        )
    return value
