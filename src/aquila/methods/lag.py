"""LAG-WK: lazily aggregated gradients, triggered by the device (Chen et al., arXiv 1805.09965).

A device uploads its gradient only if the gradient has changed enough compared with the last D steps
of the model. The original sums over devices. Here the server averages, so the factor 1 / (α² M²)
becomes 1 / α². LAG-PS, in which the server decides, is not included, because it needs one model per
device on the server.
"""

from dataclasses import dataclass
from typing import Annotated

import torch

from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Dense, Packet
from aquila.core.parameter import Bounds
from aquila.core.random import Key
from aquila.core.vector import Vector, squared_norm
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.memory import Memory, MemoryServer


@dataclass(frozen=True)
class LagDevice:
    """Sends the change of its gradient uncompressed when it is large."""

    alpha: float
    xi: float
    work: Work

    def init(self, like: Vector) -> Memory:
        """Start with an empty memory; the first reply is an upload."""
        return Memory(torch.zeros_like(like))

    def step(self, state: Memory, order: Packet, oracle: Oracle, key: Key) -> Turn[Memory]:
        """Upload iff ||∇f_m - q_m||² > ξ/α² Σ ||θ^{k+1-d} - θ^{k-d}||² (LAG, Eq. 15a)."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        change = gradient - state.q
        notes = {"loss": loss, "error_ratio": 0.0}
        threshold = self.xi / self.alpha**2 * order.scalar("drift")
        if squared_norm(change) <= (threshold if state.has_uploaded else 0.0):
            return Turn(state, Packet(order.round), notes)
        return Turn(Memory(state.q + change, True), Packet(order.round, Dense(change)), notes)

    def memory(self, state: Memory) -> Vector:
        """Return q_m."""
        return state.q


@method_factory(
    paper="Chen et al., LAG: Lazily Aggregated Gradient for Communication-Efficient Distributed "
    "Learning, 2018, arXiv 1805.09965",
    lost_reply="Counts as a skip. The server keeps using q_m, and the device rolls q_m back.",
)
def lag(
    alpha: Alpha = 0.1,
    xi: Annotated[float, Bounds("weight of each past step in the trigger", 0)] = 0.1,
    depth: Annotated[int, Bounds("past steps in the trigger, D", 1)] = 10,
    work: WorkOption = "gradient",
) -> Method:
    """Uncompressed gradients, only from devices where they changed enough."""
    return Method("lag", LagDevice(alpha, xi, work), MemoryServer(alpha, depth))
