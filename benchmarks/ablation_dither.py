"""What each part of AQUILA-Dither is worth: the method with one part at a time changed.

    python benchmarks/ablation_dither.py experiments/bytes_to_accuracy/digits_*.toml --seeds 0 1 2
    python benchmarks/bytes_to_accuracy.py table results/bytes_to_accuracy/ablation_dither

Without the entropy coder the bytes are those of the column of the papers' count. Runs that are
already there are left out, as in benchmarks/bytes_to_accuracy.py, which also makes the table.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from variants import main

from aquila.core import quantize
from aquila.core.innovation import aquila_level, measure
from aquila.core.method import Turn, Work
from aquila.core.packet import Codes
from aquila.core.random import Key
from aquila.core.vector import Vector, max_norm, squared_norm
from aquila.methods.aquila_dither import (
    AquilaDitherDevice,
    AquilaDitherMemory,
    AquilaDitherServer,
    best_memory_rate,
)
from aquila.methods.parts.damped import DampedMemoryDevice, DampedMemoryServer
from aquila.methods.parts.factory import MAX_DENSITY
from aquila.methods.parts.memory import Memory

FIXED_DENSITY = 0.006
"""Sends less than half of that: the mean of these gradients is about 0.4 times their rms."""
MEAN_DENSITY = 0.004
"""Sends just that."""
ETA = best_memory_rate(MEAN_DENSITY)
NEGLIGIBLE_RATE = 1e-30
"""Lost beside any gradient; devices take no rate of zero."""


class PrivateDither(AquilaDitherDevice):
    """A device that keeps its lots to itself."""

    def step(self, state, order, oracle, key):
        """Answer an order without the seed of the lots."""
        turn = super().step(state, order, oracle, key)
        codes = turn.reply.vector and replace(turn.reply.vector, dither_seed=None)
        return replace(turn, reply=replace(turn.reply, vector=codes))


class NoDensityBoost(AquilaDitherDevice):
    """A device that does not watch its loss."""

    def step(self, state, order, oracle, key):
        """Answer an order as if it were the first."""
        return super().step(AquilaDitherMemory(state.q), order, oracle, key)


class NoMemoryServer(AquilaDitherServer):
    """A server whose memories stay empty."""

    def init(self, theta, fleet):
        """Start with memories that do not learn."""
        return replace(super().init(theta, fleet), rate=NEGLIGIBLE_RATE)


@dataclass(frozen=True)
class UncontrolledDevice:
    """AQUILA-Dither's device with a quantizer of its own and no word from the server."""

    alpha: float
    work: Work
    quantizer: Callable[[Vector, Key, float], Codes | None]

    def init(self, like):
        """Start with nothing remembered."""
        return AquilaDitherMemory(torch.zeros_like(like))

    def step(self, state, order, oracle, key):
        """Answer an order, and watch the loss."""
        quantizer = partial(self.quantizer, boost=state.density_boost)
        damped_device = DampedMemoryDevice(self.alpha, ETA, quantizer, self.work)
        turn = damped_device.step(Memory(state.q), order, oracle, key)
        fallback_state = state.after_loss(turn.notes["loss"])
        return Turn(
            replace(fallback_state, q=turn.state.q), turn.reply, turn.notes, fallback=fallback_state
        )


def mean_as_step(v, key, boost):
    """Take the mean over the share as the step: that share is sent, however flat v is."""
    return dither_with_step(
        v, key, float(v.abs().double().mean()) / min(MAX_DENSITY, boost * MEAN_DENSITY)
    )


def largest_as_step(v, key, boost):
    """Take the largest coordinate as the step, as QSGD with the maximum norm."""
    return dither_with_step(v, key, max_norm(v) / boost)


def dither_with_step(v, key, step):
    """Draw lots for a step given."""
    density = math.sqrt(squared_norm(v) / v.numel()) / step if step else MAX_DENSITY
    return quantize.shared_dither(v, density, key)


def midrise_without_zero(v, key, boost):
    """Quantize as AQUILA does: its level, its grid."""
    return quantize.midrise(v, max(1, aquila_level(measure(v, torch.zeros_like(v)))))


def controlled(device=AquilaDitherDevice, server=AquilaDitherServer, density=0.0):
    """Return a variant that the server steers, unless the share is fixed."""
    return lambda alpha, work: (device(alpha, work), server(alpha, density))


def uncontrolled(quantizer):
    """Return a variant by its quantizer."""
    return lambda alpha, work: (
        UncontrolledDevice(alpha, work, quantizer),
        DampedMemoryServer(alpha, ETA),
    )


VARIANTS = {
    "aquila_dither": controlled(),
    "lots that only the device knows": controlled(device=PrivateDither),
    "a fixed share": controlled(density=FIXED_DENSITY),
    "step by the mean": uncontrolled(mean_as_step),
    "without the memory": controlled(server=NoMemoryServer),
    "without growth": controlled(device=NoDensityBoost),
    "largest coordinate as step": uncontrolled(largest_as_step),
    "without the zero level": uncontrolled(midrise_without_zero),
}


if __name__ == "__main__":
    main(__doc__, VARIANTS, "ablation_dither")
