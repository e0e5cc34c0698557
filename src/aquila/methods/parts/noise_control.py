"""Part: how a server holds the noise of drawn uploads at a multiple of what they tell.

Uploads that are right on average are noisy, and the server sees by how much: ||u||² of an upload u
of v is ||v||² and noise, and where the step is the rms of v over a share, the step tells ||v||². So
||q̄ + mean u||², less the noise of the mean, is the squared norm of the mean gradient. Noise goes by
the inverse of the share that devices are told to send; the server chooses the share by moving
averages of both.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.packet import Codes, Packet
from aquila.core.vector import Vector, squared_norm
from aquila.methods.parts.factory import MAX_DENSITY

MIN_ROUND_DENSITY, INITIAL_ROUND_DENSITY, MAX_ROUND_DENSITY = 0.03, 0.06, 0.3
"""Share times devices of a round that hold a coordinate: the noise goes by its inverse."""
MIN_SENT_COORDINATES = 48
"""In the whole model; half as many would not halve the bytes, since a frame has a header."""
NOISE_BUDGET = 0.17
"""Noise that the mean upload may have for each of its signal, over the root of d.

Noise is spread over all coordinates, and losses are steep in few directions: the larger a model,
the less of its noise does harm.
"""
EMA_WEIGHT = 0.2
"""Weight of the last round in the averages."""
MAX_CHANGE = 1.5
"""Factor by which a share may change in a round."""


@dataclass(frozen=True)
class DensityLimits:
    """The shares that a fleet may be told, the first one, and the noise that it bears."""

    minimum: float
    initial: float
    maximum: float
    noise_ratio: float

    @classmethod
    def for_fleet(cls, fleet: Fleet, fixed_density: float) -> "DensityLimits":
        """Return what suits the fleet, or the share that the user has fixed."""
        noise = NOISE_BUDGET * math.sqrt(fleet.dimension)
        if fixed_density:
            return cls(fixed_density, fixed_density, fixed_density, noise)
        devices = max(1.0, fleet.participation * fleet.min_holders)
        minimum_sent = MIN_SENT_COORDINATES / fleet.dimension
        minimum, initial, maximum = (
            min(MAX_DENSITY, max(minimum_sent, round_density / devices))
            for round_density in (MIN_ROUND_DENSITY, INITIAL_ROUND_DENSITY, MAX_ROUND_DENSITY)
        )
        return cls(minimum, initial, maximum, noise)


@dataclass(frozen=True)
class NoiseEstimate:
    """What the server has measured, and the share that follows from it.

    `noise` is that of the mean upload at a share of one, `signal` the squared norm of the mean
    gradient.
    """

    density: float
    noise: float = 0.0
    signal: float = 0.0
    rounds: int = 0

    def update(self, noise: float, signal: float, limits: DensityLimits) -> "NoiseEstimate":
        """Take note of a round that tells something; without signal the share goes up."""
        if not math.isfinite(noise + signal):
            return self
        weight = max(EMA_WEIGHT, 1 / (self.rounds + 1))
        noise = self.noise + weight * (noise - self.noise)
        signal = self.signal + weight * (signal - self.signal)
        wanted = noise / limits.noise_ratio / signal if signal > 0 else math.inf
        density = min(max(wanted, self.density / MAX_CHANGE), self.density * MAX_CHANGE)
        return NoiseEstimate(
            min(limits.maximum, max(limits.minimum, density)), noise, signal, self.rounds + 1
        )


def with_norms(
    vectors: Iterable[tuple[DeviceId, Vector]], squares: dict[DeviceId, float]
) -> Iterator[tuple[DeviceId, Vector]]:
    """Hand vectors on, and write their squared norms down."""
    for device, vector in vectors:
        squares[device] = squared_norm(vector)
        yield device, vector


@dataclass(frozen=True)
class UploadStats:
    """What the server can tell of the mean of a round's uploads.

    `squared_innovations` is Σ ||v_m||² / n².
    """

    noise: float
    noise_at_full_density: float
    squared_innovations: float

    @classmethod
    def measure(
        cls,
        fleet: Fleet,
        replies: Mapping[DeviceId, Packet],
        squares: Mapping[DeviceId, float],
        densities: Mapping[DeviceId, float],
    ) -> "UploadStats":
        """Measure uploads that were drawn for these shares."""
        factors = fleet.variance_factors(replies)
        noise = at_full_density = squared_innovations = 0.0
        for device, squared in squares.items():
            vector, factor = replies[device].vector, factors[fleet.groups[device]]
            if isinstance(vector, Codes):
                rms = float(vector.step[0]) * densities[device]
                # rms**2 raises where it is too large; and none can mean more than it holds
                own_signal = min(squared, vector.dimension * rms * rms)
                own_noise = (squared - own_signal) * factor
                noise, at_full_density = (
                    noise + own_noise,
                    at_full_density + own_noise * densities[device],
                )
                squared_innovations += own_signal * factor
        return cls(noise, at_full_density, squared_innovations)

    def signal(self, step: float, upload: float, replies: int, devices: int) -> float:
        """Return the squared norm of the gradient, given those of the step and of the mean upload.

        Where not all devices replied, what those that did differ by moves their mean; one of them
        tells nothing of that, and the result is NaN. Where a coordinate has few holders and fewer
        replied, the result is too small, and the share that follows too large.
        """
        seen = step - self.noise
        if replies == devices:
            return seen
        if replies < 2:
            return math.nan
        spread = (replies * self.squared_innovations - (upload - self.noise)) / (replies - 1)
        return seen - (1 - replies / devices) * spread
