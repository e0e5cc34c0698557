"""What each part of AQUILA-TopK is worth: the method with one part at a time switched off.

    python benchmarks/ablation_topk.py experiments/bytes_to_accuracy/digits_*.toml --seeds 0 1 2
    python benchmarks/bytes_to_accuracy.py table results/bytes_to_accuracy/ablation_topk

Without the entropy coder the bytes are those of the column of the papers' count. Runs that are
already there are left out, as in benchmarks/bytes_to_accuracy.py, which also makes the table.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from variants import main

from aquila.core import quantize
from aquila.core.innovation import aquila_level, measure
from aquila.core.method import Turn, Work, local_work, theta_of
from aquila.core.packet import Codes, Packet, code_dtype
from aquila.core.vector import Vector, squared_norm
from aquila.methods.aquila_topk import MEMORY_RATE, ErrorState
from aquila.methods.parts.damped import DampedMemoryServer

DENSITY = 0.01


@dataclass(frozen=True)
class Device:
    """AQUILA-TopK's device with everything about it open."""

    alpha: float
    work: Work
    quantizer: Callable[[Vector], Codes | None]
    eta: float = MEMORY_RATE * DENSITY
    feedback: bool = True
    skip_probability: float = 0.0

    def init(self, like):
        """Start with nothing owed and nothing remembered."""
        return ErrorState(torch.zeros_like(like), torch.zeros_like(like))

    def step(self, state, order, oracle, key):
        """Answer an order, or stay silent by lot."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        accumulated = state.e + (gradient - state.q)
        codes = (
            None if key.child(1).bernoulli(self.skip_probability) else self.quantizer(accumulated)
        )
        if codes is None:
            return Turn(ErrorState(accumulated, state.q), Packet(order.round), {"loss": loss})
        u = codes.decode()
        residual = accumulated - u if self.feedback else torch.zeros_like(accumulated)
        next_state = ErrorState(residual, state.q + self.eta * u)
        return Turn(next_state, Packet(order.round, codes), {"loss": loss})


def midrise_without_zero(v):
    """Quantize as AQUILA does: its level, its grid."""
    return quantize.midrise(v, max(1, aquila_level(measure(v, torch.zeros_like(v)))))


def nearest(v, step):
    """Round to the nearest point of a grid with a zero."""
    psi = (v / step).round()
    top = int(psi.abs().max())
    if top == 0:
        return None
    bits, unit = quantize.bits_for_levels(top), v.new_full((1,), step)
    return Codes((psi + top).to(code_dtype(bits)), bits, -(unit * top), unit, v.numel())


def nearest_density(v):
    """Round to the nearest, the same share of the coordinates being sent."""
    count = max(1, round(DENSITY * v.numel()))
    return nearest(v, 1.9999 * float(v.abs().topk(count).values.min()))


def four_rms(v):
    """Round to the nearest on a step of four root mean squares, however many that sends."""
    return nearest(v, 4 * math.sqrt(squared_norm(v) / v.numel()))


def variant(**parts):
    """Return a variant by the parts of its device."""

    def halves(alpha, work):
        device = Device(alpha, work, **parts)
        return device, DampedMemoryServer(alpha, device.eta)

    return halves


TOPK = partial(quantize.sparse, density=DENSITY)
TOPK_TWICE = partial(quantize.sparse, density=2 * DENSITY)
VARIANTS = {
    "aquila_topk": variant(quantizer=TOPK),
    "without the zero level": variant(quantizer=midrise_without_zero),
    "without error feedback": variant(quantizer=TOPK, feedback=False),
    "without the memory": variant(quantizer=TOPK, eta=0.0),
    "dead zone of half a step": variant(quantizer=nearest_density),
    "step of 4 rms": variant(quantizer=four_rms),
    "every other device silent": variant(quantizer=TOPK_TWICE, skip_probability=0.5),
}


if __name__ == "__main__":
    main(__doc__, VARIANTS, "ablation_topk")
