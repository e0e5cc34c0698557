"""AQUILA-TopK: error feedback and a memory on a sparse grid with a zero.

This project's alternative to AQUILA (Zhao et al., arXiv 2308.00258). AQUILA's grid has no zero, and
its skip rule rarely fires under gradient noise.

A device adds its gradient minus its memory to its error, e <- e + g - q_m. It sends u = Q(e), which
is non-zero only in the largest coordinates, a fraction called `density`. It keeps the rest,
e <- e - u, and its memory follows slowly, q_m <- q_m + η u. A coordinate thus stays silent until
its accumulated error is large, and noise that averages out is not sent. With full gradients the
memory makes the method exact. Without it, devices whose gradients differ at the optimum would keep
sending the difference. docs/our-methods.md explains the method and links to results and proofs.

Error feedback is from Seide et al. (Interspeech 2014) and Stich et al. (2018, arXiv 1809.07599).
The damped memory is DIANA's (Mishchenko et al. 2019, arXiv 1901.09269).
"""

from dataclasses import dataclass
from typing import Annotated

import torch

from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Packet
from aquila.core.parameter import Bounds
from aquila.core.quantize import sparse
from aquila.core.random import Key
from aquila.core.vector import Vector, relative_norm, squared_norm
from aquila.methods.parts.damped import DampedMemoryServer
from aquila.methods.parts.factory import MAX_DENSITY, Alpha, WorkOption, method_factory

MIN_DENSITY = 0.01
MIN_COORDINATES = 32
"""Lower limit for small models. Fewer would be slower and hardly smaller on the wire."""
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
        accumulated = state.e + (gradient - state.q)
        codes = sparse(accumulated, self.density or default_density(accumulated.numel()))
        if codes is None:  # the accumulated error is zero
            return Turn(ErrorState(accumulated, state.q), Packet(order.round), {"loss": loss})
        u = codes.decode()
        residual = accumulated - u
        ratio = relative_norm(squared_norm(residual), squared_norm(accumulated))
        notes = {"loss": loss, "error_ratio": ratio}
        return Turn(ErrorState(residual, state.q + self.eta * u), Packet(order.round, codes), notes)

    def memory(self, state: ErrorState) -> Vector:
        """Return q_m."""
        return state.q


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
    return Method("aquila_topk", device, DampedMemoryServer(alpha, eta))
