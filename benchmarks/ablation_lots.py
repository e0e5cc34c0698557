"""What each part of AQUILA-Lots is worth: the method with one part at a time switched off.

    python benchmarks/ablation_lots.py experiments/beyond/digits_*.toml --seeds 0 1 2
    python benchmarks/beyond.py table results/beyond/ablation_lots

Without the entropy coder the bytes are those of the column of the papers' count. Runs that are
already there are left out, as in benchmarks/beyond.py, which also makes the table.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from variants import main

from aquila.core import quantize
from aquila.core.innovation import aquila_level, measure
from aquila.core.method import Turn, Work, local_work, theta_of
from aquila.core.packet import Codes, Packet
from aquila.core.vector import Vector, squared_norm
from aquila.methods.aquila_lots import LotsMemory
from aquila.methods.catalog import MOST_SHARE

SHARE = 64 / 9610
"""What AQUILA-Lots takes for the MLP on digits."""
OMEGA = 1 / SHARE
EVEN_OMEGA = OMEGA / 4
"""About what gradients have, which are not flat."""
TOP_SHARE = 0.01
GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Device:
    """AQUILA-Lots's device with everything about it open."""

    alpha: float
    work: Work
    quantizer: Callable[[Vector, Vector, float], Codes | None]
    eta: float = 1 / (1 + OMEGA)
    spread: bool = False
    feedback: bool = False
    watchful: bool = True

    def init(self, like):
        """Start with nothing remembered, drawn or owed."""
        return Open(LotsMemory(torch.zeros_like(like)), *(torch.zeros_like(like) for _ in range(2)))

    def step(self, state, order, oracle, key):
        """Answer an order."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        v = state.owed + (gradient - state.memory.q)
        again = self.spread and state.lots.any()
        lots = (state.lots + GOLDEN) % 1 if again else key.uniform(v)
        codes = self.quantizer(v, lots, state.memory.boost)
        u = torch.zeros_like(v) if codes is None else codes.decode()
        owed = v - u if self.feedback else state.owed
        memory = replace(state.memory, q=state.memory.q + self.eta * u)
        after = Open(memory.after(loss) if self.watchful else memory, lots, owed)
        return Turn(after, Packet(order.round, codes), {"loss": loss})


@dataclass(frozen=True, eq=False)
class Open:
    """State of that device: memory, lots, and what is owed with error feedback."""

    memory: LotsMemory
    lots: Vector
    owed: Vector


def drawn(v, lots, boost):
    """Quantize as AQUILA-Lots does."""
    return quantize.lottery(v, min(MOST_SHARE, boost * SHARE), lots)


def without_zero(v, lots, boost):
    """Quantize as AQUILA does: its level, its grid."""
    return quantize.midrise(v, max(1, aquila_level(measure(v, torch.zeros_like(v)))))


def on_step(v, lots, step):
    """Draw lots for a step given."""
    share = float(v.abs().double().mean()) / step if step else SHARE
    return quantize.lottery(v, share, lots)


def largest_as_step(v, lots, boost):
    """Take the largest coordinate as the step, as QSGD with the maximum norm."""
    return on_step(v, lots, float(v.abs().max()) / boost)


def by_rms(v, lots, boost):
    """Measure the step by the rms, not the mean: as far from v at most, and fewer are sent."""
    return on_step(v, lots, math.sqrt(squared_norm(v) / v.numel()) / SHARE / boost)


def even_noise(v, lots, boost):
    """Choose the step for a variance of EVEN_OMEGA ||v||², however few coordinates that sends."""
    size = float(v.abs().double().sum())
    return on_step(v, lots, EVEN_OMEGA * squared_norm(v) / size / boost if size else 0.0)


def largest_only(v, lots, boost):
    """Send the coordinates that stand out, and no others."""
    return quantize.sparse(v, TOP_SHARE)


VARIANTS = {
    "aquila_lots": {"quantizer": drawn},
    "without the zero level": {"quantizer": without_zero, "watchful": False},
    "lots spread over the rounds": {"quantizer": drawn, "spread": True},
    "without the memory": {"quantizer": drawn, "eta": 0.0},
    "without growth": {"quantizer": drawn, "watchful": False},
    "largest coordinate as step": {"quantizer": largest_as_step},
    "step by the rms": {"quantizer": by_rms},
    "even noise": {"quantizer": even_noise},
    "largest only, error feedback": {
        "quantizer": largest_only,
        "eta": TOP_SHARE / 2,
        "feedback": True,
    },
}


if __name__ == "__main__":
    main(__doc__, Device, VARIANTS, "ablation_lots")
