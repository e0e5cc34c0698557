"""FedSGD: every device sends its whole gradient (McMahan et al. 2017, arXiv 1602.05629).

Distributed gradient descent without compression, the baseline of every comparison.
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
    """Sends its gradient uncompressed."""

    def init(self, like: Vector) -> NoState:
        """Start without state."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with the gradient at the model in the order."""
        loss, gradient = oracle.gradient(theta_of(order))
        return Turn(state, Packet(order.round, Dense(gradient)), {"loss": loss, "error_ratio": 0.0})


@method_factory(
    paper="McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized "
    "Data, 2017, arXiv 1602.05629",
    lost_reply="The server averages the replies that arrived.",
)
def fedsgd(alpha: Alpha = 0.1) -> Method:
    """Uncompressed gradients from every device in every round."""
    return Method("fedsgd", FedSgdDevice(), MeanServer(alpha))
