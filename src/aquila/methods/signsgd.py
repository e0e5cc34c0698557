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

from dataclasses import dataclass

import torch

from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Codes, Packet
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.mean import MeanServer, NoState


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


def majority(mean_vote: Vector) -> Vector:
    """Return the sign that most devices sent; 0 for a tie."""
    return mean_vote.sign()


@method_factory(
    paper="Bernstein et al., signSGD: Compressed Optimisation for Non-Convex Problems, 2018, "
    "arXiv 1802.04434; majority vote: Bernstein et al., signSGD with Majority Vote is "
    "Communication Efficient and Fault Tolerant, 2018, arXiv 1810.05291",
    lost_reply="The majority is taken over the votes that arrived.",
)
def signsgd(alpha: Alpha = 0.01, work: WorkOption = "gradient") -> Method:
    """One sign bit per coordinate from every device; the server follows the majority."""
    return Method("signsgd", SignSgdDevice(alpha, work), MeanServer(alpha, direction=majority))
