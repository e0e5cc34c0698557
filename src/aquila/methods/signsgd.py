"""signSGD with majority vote (Bernstein et al. 2018, arXiv 1802.04434 and arXiv 1810.05291).

A device sends the sign of each coordinate of its gradient, one bit per coordinate. The server steps
along the sign of the sum of the signs, θ <- θ - α sign(Σ_m sign(g_m)) (arXiv 1810.05291,
Algorithm 1).

One bit has no code for zero. A coordinate that is exactly zero sends a random sign, so its expected
vote is zero. A device whose gradient is zero everywhere skips the round and does not vote. If a
vote is tied, the coordinate does not move.

The method does not reach the exact optimum, for two reasons. Each coordinate moves by α or not at
all, so the model ends within a ball of size proportional to α. If the devices' data differ, the
majority can be wrong at the optimum, and the model ends elsewhere at every step size.

The useful step size is smaller than for methods that average gradients. Start with the expected
change of a weight divided by the number of rounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import (
    Method,
    Oracle,
    Turn,
    Work,
    local_work,
    model_orders,
    theta_of,
    uploads,
)
from aquila.core.packet import Codes, Packet
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.mean import MeanState, NoState


def signs(v: Vector, key: Key) -> Codes:
    """Return the signs of a vector as codes that decode to -1 and 1; zeros get random signs."""
    positive = v > 0
    zero = v == 0
    if zero.any():
        positive = torch.where(zero, key.uniform(v) < 0.5, positive)
    return Codes(positive.byte(), 1, v.new_full((1,), -1), v.new_full((1,), 2), v.numel())


@dataclass(frozen=True)
class SignSgdDevice:
    """Sends the signs of its gradient."""

    alpha: float
    work: Work

    def init(self, like: Vector) -> NoState:
        """Start without state."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with the signs of the gradient, or skip if it is zero."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        codes = signs(gradient, key) if gradient.any() else None
        return Turn(state, Packet(order.round, codes), {"loss": loss})


@dataclass(frozen=True)
class MajorityVoteServer:
    """theta <- theta - alpha * sign(sum of the signs that arrived)."""

    alpha: float

    def init(self, theta: Vector, fleet: Fleet) -> MeanState:
        """Start from the given model."""
        return MeanState(theta)

    def orders(
        self, state: MeanState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[MeanState, dict[DeviceId, Packet]]:
        """Send the model to every device."""
        return state, model_orders(fleet, state.theta, round_number)

    def update(
        self, state: MeanState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> MeanState:
        """Step by alpha against the majority's sign of each coordinate."""
        majority = fleet.mean_over_holders(uploads(replies)).sign()
        return MeanState((state.theta - self.alpha * majority).to(state.theta.dtype))


@method_factory(
    paper="Bernstein et al., signSGD: Compressed Optimisation for Non-Convex Problems, 2018, "
    "arXiv 1802.04434; majority vote: Bernstein et al., signSGD with Majority Vote is "
    "Communication Efficient and Fault Tolerant, 2018, arXiv 1810.05291",
    lost_reply="The majority is taken over the votes that arrived.",
)
def signsgd(alpha: Alpha = 0.01, work: WorkOption = "gradient") -> Method:
    """One sign bit per coordinate from every device; the server follows the majority."""
    return Method("signsgd", SignSgdDevice(alpha, work), MajorityVoteServer(alpha))
