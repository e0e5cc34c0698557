"""EF21: a memory updated by compressed differences (Richtárik et al. 2021, arXiv 2106.05203).

A device sends C(g - q_m) every round and adds it to its memory, q_m <- q_m + C(g - q_m). The server
steps along the average memory (Algorithm 2). C is any contractive compressor. Here it is the sparse
quantizer of AQUILA-TopK: like the paper's top-k it keeps the largest coordinates, but it sends
their values on a coarse grid.
"""

from dataclasses import dataclass

import torch

from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Packet
from aquila.core.quantize import sparse
from aquila.core.random import Key
from aquila.core.vector import Vector, error_ratio
from aquila.methods.parts.factory import Alpha, DensityOption, WorkOption, method_factory
from aquila.methods.parts.memory import Memory, MemoryServer


@dataclass(frozen=True)
class Ef21Device:
    """Sends compressed differences to its memory."""

    alpha: float
    density: float
    work: Work

    def init(self, like: Vector) -> Memory:
        """Start with q_m = 0."""
        return Memory(torch.zeros_like(like))

    def step(self, state: Memory, order: Packet, oracle: Oracle, key: Key) -> Turn[Memory]:
        """Send C(g - q_m) and add it to the memory (Algorithm 2, lines 5 and 6)."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        v = gradient - state.q
        codes = sparse(v, self.density)
        if codes is None:
            return Turn(state, Packet(order.round), {"loss": loss})
        dq = codes.decode()
        notes = {"loss": loss, "error_ratio": error_ratio(v, dq)}
        return Turn(Memory(state.q + dq), Packet(order.round, codes), notes)

    def memory(self, state: Memory) -> Vector:
        """Return q_m."""
        return state.q


@method_factory(
    paper="Richtárik, Sokolov and Fatkhullin, EF21: A New, Simpler, Theoretically Better, and "
    "Practically Faster Error Feedback, 2021, arXiv 2106.05203",
    lost_reply="The server keeps using q_m. The device rolls q_m back.",
)
def ef21(
    alpha: Alpha = 0.1,
    density: DensityOption = 0.01,
    work: WorkOption = "gradient",
) -> Method:
    """A memory of the gradient whose largest errors are corrected every round."""
    return Method("ef21", Ef21Device(alpha, density, work), MemoryServer(alpha))
