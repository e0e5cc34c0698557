"""AQUILA-TopK: error feedback and a memory on a sparse grid with a zero.

This project's alternative to AQUILA (Zhao et al., arXiv 2308.00258). AQUILA's grid has no zero, and
its skip rule rarely fires under gradient noise.

A device adds its gradient minus its memory to its error, e <- e + g - q_m. It sends u = Q(e), which
is non-zero only in the largest coordinates, a fraction called `density`. It keeps the rest,
e <- e - u, and its memory follows slowly, q_m <- q_m + η u. A coordinate thus stays silent until
its accumulated error is large, and noise that averages out is not sent. With full gradients the
memory makes the method exact. Without it, devices whose gradients differ at the optimum would keep
sending the difference. docs/our-methods.md explains the method and links to results and proofs.

A device that starts with e = 0 sends nothing of a small coordinate until its error has grown, which
delays training by many rounds. So the error starts at random, just below the size at which a
coordinate is sent. A coordinate is then sent early with a probability proportional to its gradient,
and uploads are unbiased from the first round on. Unlike in stochastic rounding, this noise is drawn
once and does not accumulate. The server asks for it only if all devices take part in every round,
because the mean over few devices would be too noisy.

Error feedback is from Seide et al. (Interspeech 2014) and Stich et al. (2018, arXiv 1809.07599).
The damped memory is DIANA's (Mishchenko et al. 2019, arXiv 1901.09269).
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch

from aquila.core.fleet import Fleet
from aquila.core.method import (
    Method,
    Oracle,
    Scalars,
    Turn,
    Work,
    local_work,
    theta_of,
)
from aquila.core.packet import Packet
from aquila.core.parameter import Bounds
from aquila.core.quantize import DEAD_ZONE
from aquila.core.random import Key
from aquila.core.updates import feedback_update
from aquila.core.vector import Vector, squared_norm
from aquila.methods.parts.damped import DampedMemoryServer
from aquila.methods.parts.factory import MAX_DENSITY, Alpha, WorkOption, method_factory

MIN_DENSITY = 0.01
MIN_COORDINATES = 32
"""Lower limit for small models. Fewer would be slower and hardly smaller on the wire."""
RANDOM_ERRORS = "start"
"""Scalar of an order that asks a device to draw its error at random."""
MEMORY_RATE = 0.5
"""Rate η ÷ density. A memory faster than the quantizer would oscillate."""


AutoDensity = Annotated[
    float,
    Bounds(
        "fraction of the coordinates sent per round; 0: 0.01, but at least 32 coordinates",
        0,
        MAX_DENSITY,
    ),
]


def default_density(coordinates: int) -> float:
    """Return the density for a model with this many coordinates."""
    return min(MAX_DENSITY, max(MIN_DENSITY, MIN_COORDINATES / max(1, coordinates)))


def random_error(v: Vector, density: float, key: Key) -> Vector:
    """Return the initial error of a device whose first innovation is v.

    Let s be the expected step of the quantizer. Then |e_i| is uniform within s / 2 below the
    threshold, with a random sign. So v_i pushes e_i over a threshold with probability |v_i| / s.
    """
    step = math.sqrt(squared_norm(v) / max(1, v.numel()) / 2) / density
    centered = 2 * key.uniform(v) - 1
    return step * (DEAD_ZONE * centered.sign() - centered / 2)


@dataclass(frozen=True, eq=False)
class ErrorState:
    """State of a device: its accumulated error e and its memory q."""

    e: Vector
    q: Vector


@dataclass(frozen=True)
class AquilaTopkDevice:
    """Error feedback, quantizer and memory of a device."""

    alpha: float
    density: float
    eta: float
    work: Work

    def init(self, like: Vector) -> ErrorState:
        """Start with e = 0 and q_m = 0."""
        return ErrorState(torch.zeros_like(like), torch.zeros_like(like))

    def step(self, state: ErrorState, order: Packet, oracle: Oracle, key: Key) -> Turn[ErrorState]:
        """Send u = Q(e + g - q_m) and keep the rest as the error."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        density = self.density or default_density(gradient.numel())
        error = state.e
        if RANDOM_ERRORS in order.scalars:
            error = random_error(gradient - state.q, density, key)
        update = feedback_update(error, gradient, state.q, self.eta, density)
        notes = {"loss": loss}
        if update.codes is not None:  # otherwise the accumulated error is zero
            notes["error_ratio"] = update.error_ratio
        return Turn(
            ErrorState(update.error, update.memory), Packet(order.round, update.codes), notes
        )

    def memory(self, state: ErrorState) -> Vector:
        """Return q_m."""
        return state.q


def request_random_errors(fleet: Fleet, round_number: int) -> Scalars:
    """Return the scalars of a round's orders: the request in the first round of a whole fleet."""
    return {RANDOM_ERRORS: 1.0} if round_number == 0 and fleet.participation == 1 else {}


@method_factory(
    paper="this project, 2026; error feedback after Seide et al. 2014 and Stich et al. 2018, "
    "memory after Mishchenko et al. 2019",
    lost_reply="The server averages the uploads that arrived and keeps using the device's memory. "
    "The device rolls its error and its memory back.",
)
def aquila_topk(
    alpha: Alpha = 0.1,
    density: AutoDensity = 0.0,
    work: WorkOption = "gradient",
) -> Method:
    """The largest accumulated errors on a coarse grid, with error feedback and a memory."""
    eta = MEMORY_RATE * (density or MIN_DENSITY)
    device = AquilaTopkDevice(alpha, density, eta, work)
    return Method("aquila_topk", device, DampedMemoryServer(alpha, eta, request_random_errors))
