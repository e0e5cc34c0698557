"""FedSGD: every device sends its whole gradient (McMahan et al. 2017, arXiv 1602.05629).

The yardstick of every table: distributed gradient descent with no compression at all.
"""

from dataclasses import dataclass

from aquila.core.method import Method, Oracle, Turn, theta_of
from aquila.core.packet import Dense, Packet
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.methods.parts.factory import Alpha, method_factory
from aquila.methods.parts.mean import MeanServer, NoState


@dataclass(frozen=True)
class FedSgdDevice:
    """Sends its gradient as it is."""

    def init(self, like: Vector) -> NoState:
        """Remember nothing."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with the gradient at the model of the order."""
        loss, gradient = oracle.gradient(theta_of(order))
        return Turn(state, Packet(order.round, Dense(gradient)), {"loss": loss, "error_ratio": 0.0})


@method_factory(
    paper="McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized "
    "Data, 2017, arXiv 1602.05629",
    lost_reply="the round's average is taken over the replies that arrived",
)
def fedsgd(alpha: Alpha = 0.1) -> Method:
    """No compression: the gradient of every device, every round."""
    return Method("fedsgd", FedSgdDevice(), MeanServer(alpha))
