"""Part: a server chooses the density of sparse uploads from the noise that it measures.

An unbiased upload u of a vector v is noisy: E||u||² = ||v||² + noise. The quantizer's step is the
root mean square of v divided by the density, so the server can compute ||v||² from the step. The
difference ||u||² - ||v||² estimates the noise of one upload. Subtracting the noise of the mean from
||q̄ + mean u||² estimates the signal, the squared norm of the mean gradient.

The noise is inversely proportional to the density. The server keeps moving averages of noise and
signal and chooses the density at which their ratio meets a budget.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.packet import Codes, Packet
from aquila.core.vector import Vector, squared_norm
from aquila.methods.parts.factory import MAX_DENSITY

MIN_ROUND_DENSITY, INITIAL_ROUND_DENSITY, MAX_ROUND_DENSITY = 0.03, 0.06, 0.3
"""Limits of density × devices per round. The noise of the mean is inversely proportional to it."""
MIN_SENT_COORDINATES = 48
"""Per upload of the whole model. Below this the frame header dominates the bytes."""
NOISE_BUDGET = 0.17
"""Allowed noise ÷ signal of the mean upload is this times √d.

Noise spreads over all coordinates, but losses are steep in few directions. So the larger the model,
the less harm the same noise does.
"""
EMA_WEIGHT = 0.2
"""Weight of the newest round in the moving averages."""
MAX_CHANGE = 1.5
"""Largest factor by which the density changes per round."""


@dataclass(frozen=True)
class DensityLimits:
    """Range of the density for a fleet, its initial value, and the allowed noise ÷ signal."""

    minimum: float
    initial: float
    maximum: float
    noise_ratio: float

    @classmethod
    def for_fleet(cls, fleet: Fleet, fixed_density: float) -> "DensityLimits":
        """Return the limits for a fleet; a `fixed_density` above 0 leaves no range."""
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
    """Moving averages of what the server has measured, and the density chosen from them.

    `noise` is the noise of the mean upload scaled to a density of 1. `signal` is the squared norm
    of the mean gradient.
    """

    density: float
    noise: float = 0.0
    signal: float = 0.0
    rounds: int = 0

    def update(self, noise: float, signal: float, limits: DensityLimits) -> "NoiseEstimate":
        """Return the estimate after a round; a signal of 0 or less raises the density.

        A round whose noise or signal is not finite changes nothing.
        """
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
    """Pass vectors through and store their squared norms in `squares`."""
    for device, vector in vectors:
        squares[device] = squared_norm(vector)
        yield device, vector


@dataclass(frozen=True)
class UploadStats:
    """Noise of the mean of a round's uploads.

    `noise_at_full_density` is the noise scaled to a density of 1. `squared_innovations` is
    Σ ||v_m||² / n², where n devices replied.
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
        """Measure the uploads in `replies`.

        Args:
            fleet: The fleet that replied.
            replies: All replies of the round.
            squares: ||u_m||² of each reply with an upload.
            densities: The density that each upload was quantized with.
        """
        factors = fleet.variance_factors(replies)
        noise = at_full_density = squared_innovations = 0.0
        for device, squared in squares.items():
            vector, factor = replies[device].vector, factors[fleet.groups[device]]
            if isinstance(vector, Codes):
                rms = float(vector.step[0]) * densities[device]
                # rms**2 would raise OverflowError; the minimum keeps the noise from being negative
                own_signal = min(squared, vector.dimension * rms * rms)
                own_noise = (squared - own_signal) * factor
                noise += own_noise
                at_full_density += own_noise * densities[device]
                squared_innovations += own_signal * factor
        return cls(noise, at_full_density, squared_innovations)

    def signal(self, step: float, upload: float, replies: int, devices: int) -> float:
        """Return an estimate of the squared norm of the mean gradient of all devices.

        If only some devices replied, their mean differs from the mean of all. The estimate corrects
        for that with the spread of the replies, which needs two replies; with one it is NaN. If a
        coordinate has few holders, the estimate is too small and the density becomes too large.

        Args:
            step: ||q̄ + mean upload||².
            upload: ||mean upload||².
            replies: Devices that replied.
            devices: Devices of the fleet.
        """
        seen = step - self.noise
        if replies == devices:
            return seen
        if replies < 2:
            return math.nan
        spread = (replies * self.squared_innovations - (upload - self.noise)) / (replies - 1)
        return seen - (1 - replies / devices) * spread
