"""FedAvg: local epochs, then a weighted average of models (McMahan et al. 2017, arXiv 1602.05629).

Devices send (θ - θ_m) / α, which has the size of θ_m. The server computes the average from it:
θ - α Σ w_m (θ - θ_m) / α = Σ w_m θ_m. The weights w_m are those of the run: the paper weighs
devices by their samples, which is `weights="samples"`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method, Oracle, Scalars, Turn, order_scalars, theta_of, uploads
from aquila.core.packet import Dense, Packet
from aquila.core.parameter import Bounds
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.methods.parts.factory import Alpha, method_factory
from aquila.methods.parts.mean import NoState
from aquila.methods.parts.periodic_uploads import UploadEvery, with_periodic_uploads


@dataclass(frozen=True)
class FedAvgDevice:
    """Trains on its own data and sends the difference of the models."""

    alpha: float

    def init(self, like: Vector) -> NoState:
        """Start without state."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with (θ - locally trained model) / α."""
        loss, update = oracle.train(theta_of(order), self.alpha)
        return Turn(state, Packet(order.round, Dense(update)), {"loss": loss, "error_ratio": 0.0})


@dataclass(frozen=True)
class FedAvgServer:
    """Averages the models of a random fraction of the fleet, with the weights of the run."""

    alpha: float
    fraction: float

    @property
    def steps_along_mean(self) -> bool:
        """Whether every device gets an order."""
        return self.fraction == 1

    def init(self, theta: Vector, fleet: Fleet) -> NoState:
        """Start without state."""
        return NoState()

    def orders(
        self, state: NoState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[NoState, dict[DeviceId, Scalars]]:
        """Send the model to a random fraction of the devices, at least one."""
        count = max(1, round(self.fraction * len(fleet.devices)))
        chosen = key.sample(fleet.devices, count)
        return state, order_scalars(fleet, chosen)

    def update(
        self, state: NoState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[NoState, Vector]:
        """Average the models that arrived."""
        return state, self.alpha * fleet.mean(uploads(replies), replies)


@method_factory(
    paper="McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized "
    "Data, 2017, arXiv 1602.05629",
    lost_reply="The server averages the replies that arrived.",
    fixed_work="epochs",
)
def fedavg(
    alpha: Alpha = 0.1,
    fraction: Annotated[float, Bounds("fraction of the devices in a round", above=0, high=1)] = 1.0,
    upload_every: UploadEvery = 1,
) -> Method:
    """Local epochs on each device, then the average of the models."""
    if fraction < 1 and upload_every != 1:
        raise ValueError(
            f"fedavg: upload_every must be 1 if fraction is below 1, not {upload_every}"
        )
    method = Method("fedavg", FedAvgDevice(alpha), FedAvgServer(alpha, fraction))
    return with_periodic_uploads(method, upload_every, alpha, "epochs")
