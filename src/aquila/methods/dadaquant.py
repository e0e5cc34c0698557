"""DAdaQuant: levels that adapt over time and to the devices (Hönig et al. 2022, arXiv 2111.00465).

Devices send their update with QSGD's stochastic rounding to q levels, and their loss.

- Time: q starts at q_min. The server keeps a moving average of the loss. If it has not fallen over
  the last phi rounds, and q has not changed in them, q doubles, up to q_max (Section 3.3).
- Client: a device with the weight w_i rounds to q_i = max(1, round(√(a/b) w_i^(2/3))) levels, with
  a = Σ_j w_j^(2/3) and b = Σ_j w_j² / q² over the devices of the round. This choice keeps the noise
  of the average and sends fewer bits (Section 3.4). The weights are those of the run, so it needs
  `weights="samples"`. With equal weights every q_i is q.
- `adapt=both` does both. `adapt=client` has the fixed q = q_max.

The paper sets phi to a tenth of the rounds, and q_max to the best fixed q. It scales the grid by
the 2-norm, `norm=l2`, and measures the loss at the start of a round. With `work=epochs` the loss is
the mean over the local epochs instead, because a second pass over the data would cost more.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method, Scalars, uploads
from aquila.core.packet import Packet
from aquila.core.parameter import Bounds
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.methods.adaquantfl import AdaQuantDevice
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.qsgd import NormOption

PSI = 0.9
"""Weight of earlier rounds in the moving average of the loss."""


@dataclass(frozen=True, eq=False)
class DadaquantState:
    """Levels q, rounds since q changed, and the last moving averages, oldest first."""

    levels: int
    rounds_unchanged: int = 0
    averages: tuple[float, ...] = ()


@dataclass(frozen=True)
class DadaquantServer:
    """Steps along the average of the replies, and chooses the levels of every device."""

    alpha: float
    q_min: int
    q_max: int
    phi: int
    per_device: bool
    fraction: float

    def init(self, theta: Vector, fleet: Fleet) -> DadaquantState:
        """Start with q_min levels."""
        return DadaquantState(self.q_min)

    def orders(
        self, state: DadaquantState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[DadaquantState, dict[DeviceId, Scalars]]:
        """Send the model and the levels to a random fraction of the devices, at least one."""
        count = max(1, round(self.fraction * len(fleet.devices)))
        chosen = key.sample(fleet.devices, count)
        levels = (
            levels_by_weight(state.levels, fleet, chosen)
            if self.per_device
            else dict.fromkeys(chosen, state.levels)
        )
        shared = {q: {"size": float(q)} for q in set(levels.values())}
        return state, {device: shared[q] for device, q in levels.items()}

    def check(self, reply: Packet) -> None:
        """Accept replies that report a loss."""
        reply.scalar("loss")

    def update(
        self, state: DadaquantState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[DadaquantState, Vector]:
        """Step along the average, and double the levels if the loss no longer falls."""
        step = self.alpha * fleet.mean(uploads(replies), replies)
        if not replies:
            return state, step
        loss = fleet.mean_number({d: reply.scalar("loss") for d, reply in replies.items()})
        return self.with_loss(state, loss), step

    def with_loss(self, state: DadaquantState, loss: float) -> DadaquantState:
        """Return the state after a round with this loss."""
        last = state.averages[-1] if state.averages else loss
        averages = (*state.averages, PSI * last + (1 - PSI) * loss)[-self.phi :]
        unchanged = state.rounds_unchanged + 1
        stalled = unchanged >= self.phi and averages[-1] >= averages[0]
        if stalled and state.levels < self.q_max:
            return DadaquantState(min(2 * state.levels, self.q_max), 0, averages)
        return replace(state, rounds_unchanged=unchanged, averages=averages)


def levels_by_weight(q: int, fleet: Fleet, devices: Collection[DeviceId]) -> dict[DeviceId, int]:
    """Return levels per device that give an average as little noise as q levels for all."""
    a = sum(fleet.weights[d] ** (2 / 3) for d in devices)
    b = sum(fleet.weights[d] ** 2 for d in devices) / q**2
    factor = (a / b) ** 0.5
    return {d: max(1, round(factor * fleet.weights[d] ** (2 / 3))) for d in devices}


@method_factory(
    paper="Hönig, Zhao and Mullins, DAdaQuant: Doubly-adaptive Quantization for "
    "Communication-efficient Federated Learning, ICML 2022, arXiv 2111.00465",
    lost_reply="The server averages the updates and the losses that arrived.",
)
def dadaquant(
    alpha: Alpha = 0.1,
    adapt: Annotated[Literal["both", "time", "client"], "what the levels adapt to"] = "both",
    q_min: Annotated[int, Bounds("levels in the first round", 1, 2**20)] = 1,
    q_max: Annotated[int, Bounds("largest number of levels", 1, 2**20)] = 16,
    phi: Annotated[int, Bounds("rounds without progress before levels double", 1)] = 20,
    norm: NormOption = "max",
    fraction: Annotated[float, Bounds("fraction of the devices in a round", above=0, high=1)] = 1.0,
    work: WorkOption = "gradient",
) -> Method:
    """Rounded updates with more levels when the loss stalls, and for devices with more samples."""
    if q_max < q_min:
        raise ValueError(f"dadaquant: q_max must be at least q_min, {q_min}, not {q_max}")
    first = q_max if adapt == "client" else q_min
    server = DadaquantServer(alpha, first, q_max, phi, adapt != "time", fraction)
    device = AdaQuantDevice(alpha, "levels", norm, 0, work, loss="mean")
    return Method("dadaquant", device, server)
