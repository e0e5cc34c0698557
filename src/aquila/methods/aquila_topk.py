"""AQUILA-TopK: error feedback and a memory on a sparse grid with a zero.

This project's alternative to AQUILA (Zhao et al., arXiv 2308.00258). AQUILA's grid has no zero, and
its skip rule rarely fires under gradient noise.

A device adds its gradient minus its memory to its error, e <- e + g - q_m. It sends u = Q(e), which
is nonzero only in the largest coordinates, a fraction called `density`. It keeps the rest,
e <- e - u, and its memory follows slowly, q_m <- q_m + η u. A coordinate thus stays silent until
its accumulated error is large, and noise that averages out is not sent. With full gradients the
memory makes the method exact. Without it, devices whose gradients differ at the optimum would keep
sending the difference. docs/our-methods.md explains the method and links to results and proofs.

A device that starts with e = 0 sends nothing of a small coordinate until its error has grown, which
delays training by many rounds. So the error starts at random, just below the size at which a
coordinate is sent. A coordinate is then sent early with a probability proportional to its gradient,
and uploads are unbiased from the first round on. Unlike in stochastic rounding, this noise is drawn
once and does not accumulate. The server asks for it only if all devices take part in every round,
because the mean over few devices would be too noisy. With large steps and low densities the errors
are scaled down: α times their mean must not be longer than two models. Small coordinates are then
sent less often at the start than their size demands.

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
from aquila.methods.parts.density import DENSITY_SCALAR, DensityRule, positive_scalar
from aquila.methods.parts.factory import MAX_DENSITY, Alpha, WorkOption, method_factory
from aquila.methods.parts.periodic_uploads import (
    UploadEvery,
    resolve_upload_every,
    with_periodic_uploads,
)
from aquila.methods.parts.sparse_memory import RATE_SCALAR, SparseMemoryServer

TOPK_DENSITY = DensityRule(large_models=0.01, small_models=0.018, per_root=18.0)
"""An upload costs about 1/370 of a dense one for large models, and 1/210 for small ones."""
RANDOM_ERRORS = "start"
"""Scalar of an order that asks a device to draw its error at random: √M for M devices. The mean of
M independent errors is shorter than one of them by this factor."""
MAX_INITIAL_CHANGE = 2.0
"""How much the initial errors of all devices may change the model, in lengths of the model."""
MEMORY_RATE = 0.5
"""Rate η ÷ density. A memory faster than the quantizer would oscillate."""


AutoDensity = Annotated[
    float,
    Bounds(
        "fraction of the coordinates sent per round; 0: 0.01 for large models, up to 0.018 for "
        "small ones, more for fewer than ten devices",
        0,
        MAX_DENSITY,
    ),
]


def memory_rate(density: float) -> float:
    """Return the rate η of the memories."""
    return MEMORY_RATE * density


def random_error(v: Vector, density: float, key: Key) -> Vector:
    """Return the initial error of a device whose first innovation is v.

    Let s be the mean of |v_i| divided by the density. Then |e_i| is uniform within s / 2 below the
    threshold of a quantizer with step s, with a random sign. So v_i pushes e_i over a threshold
    with probability |v_i| / s, and a fraction `density` of the coordinates is sent.
    """
    mean_size = squared_norm(v.abs().sqrt_()) / max(1, v.numel())  # same bits on every device
    step = mean_size / density
    centered = 2 * key.uniform(v) - 1
    return step * (DEAD_ZONE * centered.sign() - centered / 2)


def limited_error(error: Vector, theta: Vector, alpha: float, root_devices: float) -> Vector:
    """Return the error, scaled down if α times the mean of such errors would be too long.

    Most of it enters the model sooner or later. The zero model has no length to compare with, so
    its errors have no limit.
    """
    change = alpha * math.sqrt(squared_norm(error)) / root_devices
    limit = MAX_INITIAL_CHANGE * math.sqrt(squared_norm(theta))
    return error if limit == 0 or change <= limit else error * (limit / change)


@dataclass(frozen=True, eq=False)
class ErrorState:
    """State of a device: its accumulated error e and its memory q."""

    e: Vector
    q: Vector


@dataclass(frozen=True)
class AquilaTopkDevice:
    """Error feedback, quantizer and memory of a device."""

    alpha: float
    work: Work

    def init(self, like: Vector) -> ErrorState:
        """Start with e = 0 and q_m = 0."""
        return ErrorState(torch.zeros_like(like), torch.zeros_like(like))

    def step(self, state: ErrorState, order: Packet, oracle: Oracle, key: Key) -> Turn[ErrorState]:
        """Send u = Q(e + g - q_m) and keep the rest as the error."""
        theta = theta_of(order)
        loss, gradient = local_work(oracle, theta, self.work, self.alpha)
        density = positive_scalar(order, DENSITY_SCALAR, MAX_DENSITY)
        rate = positive_scalar(order, RATE_SCALAR, 1.0)
        error = state.e
        if RANDOM_ERRORS in order.scalars:
            drawn = random_error(gradient - state.q, density, key)
            root_devices = positive_scalar(order, RANDOM_ERRORS, math.inf)
            error = limited_error(drawn, theta, self.alpha, root_devices)
        update = feedback_update(error, gradient, state.q, rate, density)
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
    if round_number > 0 or fleet.participation < 1:
        return {}
    return {RANDOM_ERRORS: math.sqrt(fleet.effective_count(fleet.devices))}


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
    upload_every: UploadEvery = 1,
) -> Method:
    """The largest accumulated errors on a coarse grid, with error feedback and a memory."""
    every = resolve_upload_every(upload_every, work)
    server = SparseMemoryServer(
        alpha, density, TOPK_DENSITY, memory_rate, request_random_errors, every
    )
    method = Method("aquila_topk", AquilaTopkDevice(alpha, work), server)
    return with_periodic_uploads(method, every, alpha, work)
