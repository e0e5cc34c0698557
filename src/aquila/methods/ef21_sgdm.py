"""EF21-SGDM: EF21 with momentum on the devices (Fatkhullin et al. 2023, arXiv 2305.15155).

Stochastic gradients can stop EF21 from converging: it compresses the noise of each minibatch. Here
a device averages its gradients first, v <- (1 - η) v + η g. It sends c = C(v - q_m) and adds it to
its memory, q_m <- q_m + c. The server steps along the average memory (Algorithm 1). With η = 1 the
method is EF21, and C is the compressor of `ef21`.

As in the paper, v starts with the first gradient. It depends on no message, so a device keeps v if
its reply is lost.
"""

from dataclasses import dataclass
from typing import Annotated

import torch

from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Packet
from aquila.core.parameter import Bounds
from aquila.core.quantize import sparse
from aquila.core.random import Key
from aquila.core.vector import Vector, error_ratio
from aquila.methods.parts.factory import Alpha, DensityOption, WorkOption, method_factory
from aquila.methods.parts.memory import MemoryServer


@dataclass(frozen=True, eq=False)
class MomentumMemory:
    """State of a device: its memory q_m, its average gradient v, and whether it has one."""

    q: Vector
    v: Vector
    has_gradient: bool = False


@dataclass(frozen=True)
class Ef21SgdmDevice:
    """Sends compressed differences between its average gradient and its memory."""

    alpha: float
    eta: float
    density: float
    work: Work

    def init(self, like: Vector) -> MomentumMemory:
        """Start with q_m = 0 and no gradient."""
        return MomentumMemory(torch.zeros_like(like), torch.zeros_like(like))

    def step(
        self, state: MomentumMemory, order: Packet, oracle: Oracle, key: Key
    ) -> Turn[MomentumMemory]:
        """Average the gradient, send C(v - q_m) and add it to the memory (lines 7 to 9)."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        v = (1 - self.eta) * state.v + self.eta * gradient if state.has_gradient else gradient
        before = MomentumMemory(state.q, v, has_gradient=True)
        codes = sparse(v - state.q, self.density)
        if codes is None:
            return Turn(before, Packet(order.round), {"loss": loss}, fallback=before)
        c = codes.decode()
        notes = {"loss": loss, "error_ratio": error_ratio(v - state.q, c)}
        after = MomentumMemory(state.q + c, v, has_gradient=True)
        return Turn(after, Packet(order.round, codes), notes, fallback=before)

    def memory(self, state: MomentumMemory) -> Vector:
        """Return q_m."""
        return state.q


@method_factory(
    paper="Fatkhullin, Tyurin and Richtárik, Momentum Provably Improves Error Feedback!, 2023, "
    "arXiv 2305.15155",
    lost_reply="The server keeps using q_m. The device rolls q_m back and keeps its average "
    "gradient.",
)
def ef21_sgdm(
    alpha: Alpha = 0.1,
    eta: Annotated[float, Bounds("weight of the newest gradient", above=0, high=1)] = 0.1,
    density: DensityOption = 0.01,
    work: WorkOption = "gradient",
) -> Method:
    """EF21 on averaged gradients, which makes it robust to the noise of minibatches."""
    return Method("ef21_sgdm", Ef21SgdmDevice(alpha, eta, density, work), MemoryServer(alpha))
