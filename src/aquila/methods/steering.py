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
from aquila.methods.catalog import MOST_SHARE

LEAST_IN_A_ROUND, FIRST_IN_A_ROUND, MOST_IN_A_ROUND = 0.03, 0.06, 0.3
"""Share times devices of a round that hold a coordinate: the noise goes by its inverse."""
LEAST_WINNERS = 48
"""In the whole model; half as many would not halve the bytes, since a frame has a header."""
BEARABLE = 0.17
"""Noise that the mean upload may have for each of its signal, over the root of d.

Noise is spread over all coordinates, and losses are steep in few directions: the larger a model,
the less of its noise does harm.
"""
FRESH = 0.2
"""Weight of the last round in the averages."""
PACE = 1.5
"""Factor by which a share may change in a round."""


@dataclass(frozen=True)
class Limits:
    """The shares that a fleet may be told, the first one, and the noise that it bears."""

    least: float
    first: float
    most: float
    noise: float

    @classmethod
    def of(cls, fleet: Fleet, fixed: float) -> "Limits":
        """Return what suits the fleet, or the share that the user has fixed."""
        noise = BEARABLE * math.sqrt(fleet.dimension)
        if fixed:
            return cls(fixed, fixed, fixed, noise)
        devices = max(1.0, fleet.participation * fleet.fewest_holders)
        enough = LEAST_WINNERS / fleet.dimension
        least, first, most = (
            min(MOST_SHARE, max(enough, in_a_round / devices))
            for in_a_round in (LEAST_IN_A_ROUND, FIRST_IN_A_ROUND, MOST_IN_A_ROUND)
        )
        return cls(least, first, most, noise)


@dataclass(frozen=True)
class Gauge:
    """What the server has measured, and the share that follows from it.

    `noise` is that of the mean upload at a share of one, `signal` the squared norm of the mean
    gradient.
    """

    share: float
    noise: float = 0.0
    signal: float = 0.0
    rounds: int = 0

    def after(self, noise: float, signal: float, limits: Limits) -> "Gauge":
        """Take note of a round that tells something; without signal the share goes up."""
        if not math.isfinite(noise + signal):
            return self
        weight = max(FRESH, 1 / (self.rounds + 1))
        noise = self.noise + weight * (noise - self.noise)
        signal = self.signal + weight * (signal - self.signal)
        wanted = noise / limits.noise / signal if signal > 0 else math.inf
        share = min(max(wanted, self.share / PACE), self.share * PACE)
        return Gauge(min(limits.most, max(limits.least, share)), noise, signal, self.rounds + 1)


def tallied(
    vectors: Iterable[tuple[DeviceId, Vector]], squares: dict[DeviceId, float]
) -> Iterator[tuple[DeviceId, Vector]]:
    """Hand vectors on, and write their squared norms down."""
    for device, vector in vectors:
        squares[device] = squared_norm(vector)
        yield device, vector


@dataclass(frozen=True)
class Mean:
    """What the server can tell of the mean of a round's uploads: `meant` is Σ ||v_m||² / n²."""

    noise: float
    noise_at_one: float
    meant: float

    @classmethod
    def of(
        cls,
        fleet: Fleet,
        replies: Mapping[DeviceId, Packet],
        squares: Mapping[DeviceId, float],
        shares: Mapping[DeviceId, float],
    ) -> "Mean":
        """Measure uploads that were drawn for these shares."""
        left = fleet.variance_left(replies)
        noise = at_one = meant = 0.0
        for device, squared in squares.items():
            vector, part = replies[device].vector, left[fleet.groups[device]]
            if isinstance(vector, Codes):
                rms = float(vector.step[0]) * shares[device]
                # rms**2 raises where it is too large; and none can mean more than it holds
                told = min(squared, vector.dimension * rms * rms)
                own = (squared - told) * part
                noise, at_one = noise + own, at_one + own * shares[device]
                meant += told * part
        return cls(noise, at_one, meant)

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
        spread = (replies * self.meant - (upload - self.noise)) / (replies - 1)
        return seen - (1 - replies / devices) * spread
