"""The variants of ablation.py: our methods with one part changed or removed."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

import aquila
from aquila.core import quantize
from aquila.core.innovation import aquila_level, measure
from aquila.core.method import Turn, Work, local_work, theta_of
from aquila.core.packet import Codes, Packet, code_dtype
from aquila.core.random import Key
from aquila.core.vector import Vector, max_norm, squared_norm
from aquila.methods.aquila_dither import (
    AquilaDitherDevice,
    DitherDeviceState,
    best_memory_rate,
)
from aquila.methods.aquila_topk import MEMORY_RATE, ErrorState, random_error
from aquila.methods.parts.damped import DampedMemoryDevice, DampedMemoryServer
from aquila.methods.parts.density import DITHER_DENSITY
from aquila.methods.parts.factory import MAX_DENSITY
from aquila.methods.parts.memory import Memory
from aquila.methods.parts.sparse_memory import SparseMemoryServer

MEAN_DENSITY = 0.04
"""Fraction of the coordinates that is sent, on average. It is about that of the default density."""
MEAN_RATE = best_memory_rate(MEAN_DENSITY)
TOPK_DENSITY = 0.01
PEAK_DENSITY = 1 / 256
EDEN_DENSITY = 9 / 256
"""A peak of 256 coordinates costs nine bits, as much as nine signs."""


class PrivateDither(AquilaDitherDevice):
    """A device whose dither the server does not know."""

    def step(self, state, order, oracle, key):
        """Reply without the seed of the dither."""
        turn = super().step(state, order, oracle, key)
        codes = turn.reply.vector and replace(turn.reply.vector, dither_seed=None)
        return replace(turn, reply=replace(turn.reply, vector=codes))


class NoDensityBoost(AquilaDitherDevice):
    """A device that ignores its loss."""

    def step(self, state, order, oracle, key):
        """Reply as in the first round."""
        return super().step(DitherDeviceState(state.q), order, oracle, key)


class NoMemoryDevice(AquilaDitherDevice):
    """A device whose memory stays empty."""

    def step(self, state, order, oracle, key):
        """Reply, and forget the upload."""
        turn = super().step(state, order, oracle, key)
        return replace(turn, state=replace(turn.state, q=state.q))


class NoMemoryServer(SparseMemoryServer):
    """A server whose memory stays empty."""

    def update(self, state, fleet, replies):
        """Step along the mean upload."""
        _, step = super().update(state, fleet, replies)
        return state, step


@dataclass(frozen=True)
class OtherQuantizerDevice:
    """AQUILA-Dither's device with another quantizer."""

    alpha: float
    work: Work
    quantizer: Callable[[Vector, Key, float], Codes | None]

    def init(self, like):
        """Start with an empty memory."""
        return DitherDeviceState(torch.zeros_like(like))

    def step(self, state, order, oracle, key):
        """Reply to an order, and adapt the density boost to the loss."""
        quantizer = partial(self.quantizer, boost=state.density_boost)
        damped = DampedMemoryDevice(self.alpha, MEAN_RATE, quantizer, self.work)
        turn = damped.step(Memory(state.q), order, oracle, key)
        fallback_state = state.after_loss(turn.notes["loss"])
        return Turn(
            replace(fallback_state, q=turn.state.q), turn.reply, turn.notes, fallback=fallback_state
        )


@dataclass(frozen=True)
class TopKDevice:
    """AQUILA-TopK's device with every part replaceable."""

    alpha: float
    work: Work
    quantizer: Callable[[Vector], Codes | None]
    eta: float = MEMORY_RATE * TOPK_DENSITY
    start_density: float = TOPK_DENSITY
    """Density that the random initial errors are for; 0: errors start at zero."""
    feedback: bool = True
    skip_probability: float = 0.0

    def init(self, like):
        """Start with an empty memory; the first round draws the error."""
        return ErrorState(torch.zeros_like(like), torch.zeros_like(like))

    def step(self, state, order, oracle, key):
        """Reply to an order, or skip at random."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        innovation = gradient - state.q
        draws = order.round == 0 and self.start_density
        error = random_error(innovation, self.start_density, key) if draws else state.e
        accumulated = error + innovation
        codes = (
            None if key.child(1).bernoulli(self.skip_probability) else self.quantizer(accumulated)
        )
        if codes is None:
            return Turn(ErrorState(accumulated, state.q), Packet(order.round), {"loss": loss})
        u = codes.decode()
        residual = accumulated - u if self.feedback else torch.zeros_like(accumulated)
        next_state = ErrorState(residual, state.q + self.eta * u)
        return Turn(next_state, Packet(order.round, codes), {"loss": loss})


def mean_as_step(v, key, boost):
    """Use mean magnitude ÷ density as the step, so that this density is sent on average."""
    return dither_with_step(
        v, key, float(v.abs().double().mean()) / min(MAX_DENSITY, boost * MEAN_DENSITY)
    )


def largest_as_step(v, key, boost):
    """Use the largest coordinate as the step, as QSGD with the maximum norm."""
    return dither_with_step(v, key, max_norm(v) / boost)


def dither_with_step(v, key, step):
    """Quantize with a shared dither and this step."""
    density = math.sqrt(squared_norm(v) / v.numel()) / step if step else MAX_DENSITY
    return quantize.shared_dither(v, density, key)


def midrise_without_zero(v, key=None, boost=1.0):
    """Quantize with AQUILA's level and grid, which has no zero."""
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
    """Round to the nearest point, with a step that sends the same density."""
    count = max(1, round(TOPK_DENSITY * v.numel()))
    return nearest(v, 1.9999 * float(v.abs().topk(count).values.min()))


def four_rms(v):
    """Round to the nearest point of a grid with a step of four root mean squares."""
    return nearest(v, 4 * math.sqrt(squared_norm(v) / v.numel()))


def dither(device=AquilaDitherDevice, server=SparseMemoryServer, density=0.0):
    """Return a variant of AQUILA-Dither with these halves; density 0 is the default density."""
    return lambda alpha, work: (
        device(alpha, work),
        server(alpha, density, DITHER_DENSITY, best_memory_rate),
    )


def other_quantizer(quantizer):
    """Return a variant with this quantizer."""
    return lambda alpha, work: (
        OtherQuantizerDevice(alpha, work, quantizer),
        DampedMemoryServer(alpha, MEAN_RATE),
    )


def topk(density=TOPK_DENSITY, **parts):
    """Return a variant of AQUILA-TopK with these parts."""

    def halves(alpha, work):
        quantizer = partial(quantize.sparse, density=density)
        device = TopKDevice(alpha, work, **{"quantizer": quantizer, **parts})
        return device, DampedMemoryServer(alpha, device.eta)

    return halves


def peak(memory="device"):
    """Return a variant of AQUILA-Peak at a density for a thousandth of the bytes."""

    def parts(alpha, work):
        method = aquila.create(
            "aquila_peak", alpha=alpha, work=work, density=PEAK_DENSITY, memory=memory
        )
        return method.device, method.server, method.reader

    return parts


def eden(alpha, work):
    """Return EDEN with the bytes of AQUILA-Peak: signs of random rotated coordinates."""
    method = aquila.create("eden", alpha=alpha, work=work, density=EDEN_DENSITY)
    return method.device, method.server


PEAK_CONSTANTS = {
    "rates of power 2": {"RATE_POWER": 2.0},
    "rates of power 1": {"RATE_POWER": 1.0},
    "the same rate for all": {"RATE_POWER": 0.0},
}
"""Variants of AQUILA-Peak that have other constants."""

# per method: name of a variant -> function from alpha and work to the parts of the method
VARIANTS = {
    "aquila_dither": {
        "aquila_dither": dither(),
        "private dither": dither(device=PrivateDither),
        "a fifth of the density": dither(density=0.012),
        "five times the density": dither(density=0.3),
        "step from the mean": other_quantizer(mean_as_step),
        "without the memory": dither(NoMemoryDevice, NoMemoryServer),
        "without density boost": dither(device=NoDensityBoost),
        "largest coordinate as step": other_quantizer(largest_as_step),
        "without the zero level": other_quantizer(midrise_without_zero),
    },
    "aquila_peak": {
        "aquila_peak": peak(),
        **{name: peak() for name in PEAK_CONSTANTS},
        "without the memory": peak(memory="none"),
        "random coordinates, EDEN": eden,
    },
    "aquila_topk": {
        "aquila_topk": topk(),
        "errors start at zero": topk(start_density=0.0),
        "without the zero level": topk(quantizer=midrise_without_zero, start_density=0.0),
        "without error feedback": topk(feedback=False, start_density=0.0),
        "without the memory": topk(eta=0.0),
        "dead zone of half a step": topk(quantizer=nearest_density),
        "step of 4 rms": topk(quantizer=four_rms, start_density=0.0),
        "skips at random, twice the density": topk(
            2 * TOPK_DENSITY, start_density=2 * TOPK_DENSITY, skip_probability=0.5
        ),
    },
}
