"""AQUILA-TopK: error feedback on a grid with a zero, sized by how many coordinates it may spend.

Our own answer to AQUILA (Zhao et al., arXiv 2308.00258), whose grid has no zero and whose skip rule
hardly ever fires under gradient noise. A device adds what its gradient holds beyond its memory to
what it still owes the server, e <- e + g - q_m; it sends u = Q(e), in which only the `density` of
the coordinates that stand out are not zero; it keeps the rest, e <- e - u, and lets the memory
follow slowly, q_m <- q_m + η u. So a coordinate is silent until what it has to say is worth its
bytes: the skip rule works by coordinate, and noise is told only as far as it piles up. The memory
makes the method exact where gradients are: without it, devices that disagree would tell so for
ever.
docs/our-methods.md explains the method and links to results and proofs.

Error feedback is that of Seide et al. (Interspeech 2014) and Stich et al. (2018, arXiv 1809.07599),
the damped memory that of DIANA (Mishchenko et al. 2019, arXiv 1901.09269).
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
"""Of a small model; fewer would be too late, and hardly cheaper."""
MEMORY_RATE = 0.5
"""Rate η of the memory against the share: a memory that outruns the quantizer would swing."""


AutoDensity = Annotated[
    float,
    Bounds(
        "share of the coordinates sent in a round; 0: 0.01, or 32 of them if that is more",
        0,
        MAX_DENSITY,
    ),
]


def default_density(coordinates: int) -> float:
    """Return a share that makes enough coordinates."""
    return min(MAX_DENSITY, max(MIN_DENSITY, MIN_COORDINATES / max(1, coordinates)))


@dataclass(frozen=True, eq=False)
class ErrorState:
    """State of a device: what the server has not been told yet, e, and the memory it reuses, q."""

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
        """Start with nothing owed and nothing remembered."""
        return ErrorState(torch.zeros_like(like), torch.zeros_like(like))

    def step(self, state: ErrorState, order: Packet, oracle: Oracle, key: Key) -> Turn[ErrorState]:
        """Send u = Q(e + g - q_m) and keep the rest."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        accumulated = state.e + (gradient - state.q)
        codes = sparse(accumulated, self.density or default_density(accumulated.numel()))
        if codes is None:  # nothing is owed
            return Turn(ErrorState(accumulated, state.q), Packet(order.round), {"loss": loss})
        u = codes.decode()
        residual = accumulated - u
        ratio = relative_norm(squared_norm(residual), squared_norm(accumulated))
        notes = {"loss": loss, "error_ratio": ratio}
        return Turn(ErrorState(residual, state.q + self.eta * u), Packet(order.round, codes), notes)


@method_factory(
    paper="this project, 2026; error feedback after Seide et al. 2014 and Stich et al. 2018, "
    "memory after Mishchenko et al. 2019",
    lost_reply="the mean upload is taken over the replies that arrived; a device whose reply was "
    "lost took no part: it owes and remembers what it did before, and the server reuses its memory",
)
def aquila_topk(
    alpha: Alpha = 0.1,
    density: AutoDensity = 0.0,
    work: WorkOption = "gradient",
) -> Method:
    """Error feedback on a grid with a zero: a coordinate is silent until it is worth its bytes."""
    eta = MEMORY_RATE * (density or MIN_DENSITY)
    device = AquilaTopkDevice(alpha, density, eta, work)
    return Method("aquila_topk", device, DampedMemoryServer(alpha, eta))
