"""What each part of AQUILA-Lots is worth: the method with one part at a time changed.

    python benchmarks/ablation_lots.py experiments/beyond/digits_*.toml --seeds 0 1 2
    python benchmarks/beyond.py table results/beyond/ablation_lots

Without the entropy coder the bytes are those of the column of the papers' count. Runs that are
already there are left out, as in benchmarks/beyond.py, which also makes the table.
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
from aquila.methods.aquila_lots import AquilaLotsDevice, AquilaLotsServer, LotsMemory, rate_for
from aquila.methods.catalog import MOST_SHARE
from aquila.methods.damped import DampedMemoryDevice, DampedMemoryServer
from aquila.methods.memory import Memory

FIXED_SHARE = 0.006
"""Sends less than half of that: the mean of these gradients is about 0.4 times their rms."""
MEAN_SHARE = 0.004
"""Sends just that."""
ETA = rate_for(MEAN_SHARE)
NO_RATE = 1e-30
"""Lost beside any gradient; devices take no rate of zero."""


class OwnLots(AquilaLotsDevice):
    """A device that keeps its lots to itself."""

    def step(self, state, order, oracle, key):
        """Answer an order without the seed of the lots."""
        turn = super().step(state, order, oracle, key)
        codes = turn.reply.vector and replace(turn.reply.vector, lots=None)
        return replace(turn, reply=replace(turn.reply, vector=codes))


class Unwatchful(AquilaLotsDevice):
    """A device that does not watch its loss."""

    def step(self, state, order, oracle, key):
        """Answer an order as if it were the first."""
        return super().step(LotsMemory(state.q), order, oracle, key)


class Forgetful(AquilaLotsServer):
    """A server whose memories stay empty."""

    def init(self, theta, fleet):
        """Start with memories that do not learn."""
        return replace(super().init(theta, fleet), rate=NO_RATE)


@dataclass(frozen=True)
class Unsteered:
    """AQUILA-Lots's device with a quantizer of its own and no word from the server."""

    alpha: float
    work: Work
    quantizer: Callable[[Vector, Key, float], Codes | None]

    def init(self, like):
        """Start with nothing remembered."""
        return LotsMemory(torch.zeros_like(like))

    def step(self, state, order, oracle, key):
        """Answer an order, and watch the loss."""
        quantizer = partial(self.quantizer, boost=state.boost)
        damped = DampedMemoryDevice(self.alpha, ETA, quantizer, self.work)
        turn = damped.step(Memory(state.q), order, oracle, key)
        watchful = state.after(turn.notes["loss"])
        return Turn(replace(watchful, q=turn.state.q), turn.reply, turn.notes, fallback=watchful)


def mean_as_step(v, key, boost):
    """Take the mean over the share as the step: that share is sent, however flat v is."""
    return on_step(v, key, float(v.abs().double().mean()) / min(MOST_SHARE, boost * MEAN_SHARE))


def largest_as_step(v, key, boost):
    """Take the largest coordinate as the step, as QSGD with the maximum norm."""
    return on_step(v, key, max_norm(v) / boost)


def on_step(v, key, step):
    """Draw lots for a step given."""
    share = math.sqrt(squared_norm(v) / v.numel()) / step if step else MOST_SHARE
    return quantize.shared_lottery(v, share, key)


def without_zero(v, key, boost):
    """Quantize as AQUILA does: its level, its grid."""
    return quantize.midrise(v, max(1, aquila_level(measure(v, torch.zeros_like(v)))))


def steered(device=AquilaLotsDevice, server=AquilaLotsServer, share=0.0):
    """Return a variant that the server steers, unless the share is fixed."""
    return lambda alpha, work: (device(alpha, work), server(alpha, share))


def unsteered(quantizer):
    """Return a variant by its quantizer."""
    return lambda alpha, work: (Unsteered(alpha, work, quantizer), DampedMemoryServer(alpha, ETA))


VARIANTS = {
    "aquila_lots": steered(),
    "lots that only the device knows": steered(device=OwnLots),
    "a fixed share": steered(share=FIXED_SHARE),
    "step by the mean": unsteered(mean_as_step),
    "without the memory": steered(server=Forgetful),
    "without growth": steered(device=Unwatchful),
    "largest coordinate as step": unsteered(largest_as_step),
    "without the zero level": unsteered(without_zero),
}


if __name__ == "__main__":
    main(__doc__, VARIANTS, "ablation_lots")
