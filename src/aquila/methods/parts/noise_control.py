"""Part: a server chooses the density of sparse uploads from the noise that it measures.

Two quantities matter:

- The noise is the expected squared error of the mean upload. An upload u of an innovation v is
  unbiased, so E||u||² = ||v||² + noise of u. The step of the quantizer is rms(v) / density. From it
  the server computes ||v||² = d (step * density)², and estimates the noise of u by ||u||² - ||v||².
- The signal is the squared norm of the mean gradient. It is ||q̄ + mean u||² minus the noise.

The noise is inversely proportional to the density. So noise * density, the noise at full density,
hardly changes when the density does. The server keeps moving averages of it and of the signal. It
chooses the density at which noise ÷ signal equals a budget:

    density = noise at full density / (budget * signal)

docs/our-methods.md has the formulas and the reasons.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from aquila.core.fleet import DeviceId, Fleet, Summand
from aquila.core.packet import Codes, Packet
from aquila.core.vector import squared_norm
from aquila.methods.parts.factory import MAX_DENSITY

MIN_ROUND_DENSITY, INITIAL_ROUND_DENSITY, MAX_ROUND_DENSITY = 0.03, 0.06, 0.3
"""Density × devices per round. The noise of the mean is inversely proportional to this product."""
MIN_SENT_COORDINATES = 48
"""Lower limit for an upload of the whole model. Below it the frame header dominates the bytes."""
NOISE_BUDGET = 0.17
"""The mean upload may have a noise ÷ signal of this times √d.

Noise spreads over all coordinates, but losses are steep in few directions. So the larger the model,
the less harm the same noise does.
"""
EMA_WEIGHT = 0.2
"""Weight of the newest round in the moving averages."""
MAX_CHANGE = 1.5
"""Largest factor by which the density changes per round."""


@dataclass(frozen=True)
class DensityLimits:
    """Range of the density for a fleet, its initial value, and the largest noise ÷ signal."""

    minimum: float
    initial: float
    maximum: float
    max_noise_ratio: float

    @classmethod
    def for_fleet(cls, fleet: Fleet, fixed_density: float) -> "DensityLimits":
        """Return the limits for a fleet; a `fixed_density` above 0 leaves no range."""
        max_noise_ratio = NOISE_BUDGET * math.sqrt(fleet.dimension)
        if fixed_density:
            return cls(fixed_density, fixed_density, fixed_density, max_noise_ratio)
        devices = max(1.0, fleet.participation * fleet.min_effective_holders)
        minimum_sent = MIN_SENT_COORDINATES / fleet.dimension
        minimum, initial, maximum = (
            min(MAX_DENSITY, max(minimum_sent, round_density / devices))
            for round_density in (MIN_ROUND_DENSITY, INITIAL_ROUND_DENSITY, MAX_ROUND_DENSITY)
        )
        return cls(minimum, initial, maximum, max_noise_ratio)


@dataclass(frozen=True)
class NoiseEstimate:
    """Moving averages of what the server has measured, and the density for the next round.

    Attributes:
        density: The density for the next round.
        noise_at_full_density: Moving average of the noise of the mean upload times the density.
        signal: Moving average of the squared norm of the mean gradient.
        rounds: Rounds in the averages.
    """

    density: float
    noise_at_full_density: float = 0.0
    signal: float = 0.0
    rounds: int = 0

    def update(
        self, noise_at_full_density: float, signal: float, limits: DensityLimits
    ) -> "NoiseEstimate":
        """Return the estimate after a round with this noise and signal.

        A signal of 0 or less means that the noise hides it, so the density rises. A round whose
        noise or signal is not finite changes nothing.
        """
        if not math.isfinite(noise_at_full_density + signal):
            return self
        weight = max(EMA_WEIGHT, 1 / (self.rounds + 1))  # plain averages in the first rounds
        noise = self.noise_at_full_density
        noise += weight * (noise_at_full_density - noise)
        signal = self.signal + weight * (signal - self.signal)
        wanted = noise / limits.max_noise_ratio / signal if signal > 0 else math.inf
        density = min(max(wanted, self.density / MAX_CHANGE), self.density * MAX_CHANGE)
        return NoiseEstimate(
            min(limits.maximum, max(limits.minimum, density)), noise, signal, self.rounds + 1
        )


def record_norms(
    vectors: Iterable[tuple[DeviceId, Summand]], squared_norms: dict[DeviceId, float]
) -> Iterator[tuple[DeviceId, Summand]]:
    """Yield the vectors unchanged and store the squared norm of each in `squared_norms`."""
    for device, vector in vectors:
        squared_norms[device] = squared_norm(vector)
        yield device, vector


@dataclass(frozen=True)
class UploadStats:
    """Measurements of the uploads of one round, to which n devices replied.

    Attributes:
        noise: Noise of the mean upload.
        noise_at_full_density: The same, with the noise of each upload multiplied by its density.
        squared_innovations: Σ ||v_m||² / n², with the weights of the devices if they differ.
    """

    noise: float
    noise_at_full_density: float
    squared_innovations: float

    @classmethod
    def measure(
        cls,
        fleet: Fleet,
        replies: Mapping[DeviceId, Packet],
        squared_uploads: Mapping[DeviceId, float],
        densities: Mapping[DeviceId, float],
    ) -> "UploadStats":
        """Measure the uploads in `replies`.

        Args:
            fleet: The fleet that replied.
            replies: All replies of the round.
            squared_uploads: ||u_m||² of each upload.
            densities: The density that each upload was quantized with.
        """
        factors = fleet.variance_factors(replies)
        noise = at_full_density = squared_innovations = 0.0
        for device, squared_upload in squared_uploads.items():
            vector, factor = replies[device].vector, factors[device]
            if isinstance(vector, Codes):
                rms = float(vector.step[0]) * densities[device]
                # not rms**2, which raises OverflowError; the minimum prevents negative noise
                squared_innovation = min(squared_upload, vector.dimension * rms * rms)
                upload_noise = (squared_upload - squared_innovation) * factor
                noise += upload_noise
                at_full_density += upload_noise * densities[device]
                squared_innovations += squared_innovation * factor
        return cls(noise, at_full_density, squared_innovations)

    def signal(
        self, squared_step: float, squared_mean_upload: float, replied: float, devices: float
    ) -> float:
        """Return an estimate of the squared norm of the mean gradient of all devices.

        If only some devices replied, their mean innovation differs from that of all devices. This
        adds the sampling variance of the mean to the squared step, so it is subtracted. It is
        estimated from the spread of the replies, which needs two of them; with one the result is
        NaN. If a coordinate has few holders, the estimate is too small and the density becomes too
        large.

        Args:
            squared_step: ||q̄ + mean upload||².
            squared_mean_upload: ||mean upload||².
            replied: Effective number of devices that replied, see `Fleet.effective_count`.
            devices: Effective number of devices of the fleet.
        """
        signal_of_replies = squared_step - self.noise
        if replied == devices:
            return signal_of_replies
        if replied < 2:
            return math.nan
        squared_mean_innovation = squared_mean_upload - self.noise
        variance_of_mean = (replied * self.squared_innovations - squared_mean_innovation) / (
            replied - 1
        )
        # the factor corrects for sampling without replacement from a finite fleet
        return signal_of_replies - (1 - replied / devices) * variance_of_mean
