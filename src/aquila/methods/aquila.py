"""AQUILA: adaptive quantization of lazily aggregated gradients (Zhao et al., arXiv 2308.00258).

A device quantizes the innovation v = ∇f_m(θᵏ) - q_m at a level b* that it computes itself. It skips
the round if its upload and its quantization error are both small compared with the last step of the
model. Equation names are those of the paper.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from aquila.core.innovation import aquila_level, measure
from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Packet
from aquila.core.parameter import Bounds
from aquila.core.random import Key
from aquila.core.vector import Vector, relative_norm
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.memory import Memory, MemoryServer

LevelRule = Literal["paper", "tight"]
TIGHTNESS: dict[LevelRule, float] = {"paper": 1.0, "tight": 7.0}


@dataclass(frozen=True)
class AquilaDevice:
    """Level rule, quantizer and skip rule of a device."""

    alpha: float
    beta: float
    b_min: int
    level_rule: LevelRule
    work: Work

    def init(self, like: Vector) -> Memory:
        """Start with q_m = 0."""
        return Memory(torch.zeros_like(like))

    def step(self, state: Memory, order: Packet, oracle: Oracle, key: Key) -> Turn[Memory]:
        """Answer one order (Algorithm 1)."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        v = measure(gradient, state.q)
        level = max(aquila_level(v, TIGHTNESS[self.level_rule]), self.b_min)  # Theorem 1
        candidate = v.midrise(level)  # Definition 2
        if candidate is None:  # R = 0: nothing to send
            return Turn(state, Packet(order.round), {"loss": loss})
        notes = {
            "loss": loss,
            "error_ratio": relative_norm(candidate.error_squared, v.squared_norm),
        }
        # skip rule: ||Δq||² + ||ε||² <= β/α² ||θᵏ - θᵏ⁻¹||²; the first reply is an upload
        threshold = self.beta / self.alpha**2 * order.scalar("drift")
        is_small = candidate.sent_squared + candidate.error_squared <= threshold
        if state.has_uploaded and is_small:
            return Turn(state, Packet(order.round), notes)
        return Turn(Memory(candidate.memory, True), Packet(order.round, candidate.upload), notes)

    def memory(self, state: Memory) -> Vector:
        """Return q_m."""
        return state.q


@method_factory(
    paper="Zhao et al., AQUILA: Communication Efficient Federated Learning with Adaptive "
    "Quantization in Device Selection Strategy, 2023, arXiv 2308.00258",
    lost_reply="Counts as a skip. The server keeps using q_m. The device rolls q_m back and "
    "measures the next innovation from it.",
)
def aquila(
    alpha: Alpha = 0.1,
    beta: Annotated[float, Bounds("weight of the last step in the skip rule", 0)] = 0.25,
    b_min: Annotated[
        int, Bounds("lowest level; at 1, as in the paper, the quantizer does not contract", 1, 31)
    ] = 1,
    level_rule: Annotated[
        LevelRule, "level rule of the paper, or its bound without slack"
    ] = "paper",
    work: WorkOption = "gradient",
) -> Method:
    """Quantized innovations with levels chosen per device; small innovations are skipped."""
    device = AquilaDevice(alpha, beta, b_min, level_rule, work)
    return Method("aquila", device, MemoryServer(alpha))
