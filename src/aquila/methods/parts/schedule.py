"""Part: a quantizer size that grows as the global loss falls, added to any server.

Devices report their loss, and the server sends one size to all of them. The loss of round k is
known only after its replies, so each round uses the loss of the round before.

The loss that devices report is that at the start of the round. After local epochs this takes
another forward pass, over the first minibatch of the round.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import (
    Oracle,
    Scalars,
    ServerHalf,
    Work,
    check_reply,
    has_memory,
    loss_at,
    server_memory,
)
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.core.vector import Vector

MIN_RELATIVE_LOSS = 1e-18
"""Lower limit of loss ÷ first loss. At this ratio the size exceeds every quantizer's maximum."""

ReportedLoss = Literal["start", "mean"]
LossOption = Annotated[
    ReportedLoss,
    "loss that a device reports: at the start of the round, or the mean of its local epochs",
]


def loss_to_report(
    kind: ReportedLoss, oracle: Oracle, theta: Vector, work: Work, local_loss: float
) -> float:
    """Return the loss that a device reports, given that of its local work.

    The loss of a gradient is already that at the start of the round.
    """
    return loss_at(oracle, theta) if kind == "start" and work == "epochs" else local_loss


@dataclass(frozen=True, eq=False)
class ScheduleState:
    """State of the wrapped server, and the first and latest global loss (0: not known yet)."""

    inner: Any
    first_loss: float = 0.0
    latest_loss: float = 0.0


@dataclass(frozen=True)
class ScheduledServer:
    """Adds the scalar `size` = initial_size √(f(θ⁰) / f(θᵏ)) to the orders of another server."""

    inner: ServerHalf[Any]
    initial_size: float

    @property
    def remembers(self) -> bool:
        """Whether the wrapped server has a memory."""
        return has_memory(self.inner)

    def init(self, theta: Vector, fleet: Fleet) -> ScheduleState:
        """Start the wrapped server."""
        return ScheduleState(self.inner.init(theta, fleet))

    def orders(
        self, state: ScheduleState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[ScheduleState, dict[DeviceId, Scalars]]:
        """Add the size to the orders of the wrapped server."""
        inner, orders = self.inner.orders(state.inner, fleet, round_number, key)
        size = self.initial_size
        if state.first_loss > 0:
            size *= math.sqrt(
                state.first_loss / max(state.latest_loss, state.first_loss * MIN_RELATIVE_LOSS)
            )
        distinct = {id(scalars): scalars for scalars in orders.values()}  # devices share mappings
        with_size = {number: {**scalars, "size": size} for number, scalars in distinct.items()}
        return replace(state, inner=inner), {d: with_size[id(s)] for d, s in orders.items()}

    def check(self, reply: Packet) -> None:
        """Accept replies that report a loss and that the wrapped server accepts."""
        reply.scalar("loss")
        check_reply(self.inner, reply)

    def update(
        self, state: ScheduleState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[ScheduleState, Vector | None]:
        """Update the wrapped server and record the mean loss."""
        inner, step = self.inner.update(state.inner, fleet, replies)
        if not replies:
            return replace(state, inner=inner), step
        latest = fleet.mean_number({d: reply.scalar("loss") for d, reply in replies.items()})
        return ScheduleState(inner, state.first_loss or latest, latest), step

    def memory(self, state: ScheduleState) -> Vector:
        """Return q̄ of the wrapped server."""
        return server_memory(self.inner).memory(state.inner)

    def contribution(self, reply: Packet) -> Vector | None:
        """Return the contribution to the memory of the wrapped server."""
        return server_memory(self.inner).contribution(reply)

    def forget(
        self, state: ScheduleState, fleet: Fleet, device: DeviceId, contributions: Iterable[Vector]
    ) -> ScheduleState:
        """Subtract the device's uploads from the memory of the wrapped server."""
        inner = server_memory(self.inner).forget(state.inner, fleet, device, contributions)
        return replace(state, inner=inner)
