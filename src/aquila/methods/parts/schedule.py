"""Part: a width that grows as the global loss falls, wrapped around any server.

Devices report their loss; the server tells them one width for all. The loss of round k is known
only after its replies, so a round uses the loss of the round before it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import ServerHalf
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.core.vector import Vector

MIN_RELATIVE_LOSS = 1e-18
"""Share of the first loss below which a loss counts as this much; far beyond any width's cap."""


@dataclass(frozen=True, eq=False)
class ScheduleState:
    """The wrapped server's state, and the first and latest global loss (0: not known yet)."""

    inner: Any
    first_loss: float = 0.0
    latest_loss: float = 0.0


@dataclass(frozen=True)
class ScheduledServer:
    """Adds `size` = initial_size * sqrt(f(θ⁰) / f(θᵏ)) to the orders of another server."""

    inner: ServerHalf[Any]
    initial_size: float

    @property
    def remembers(self) -> bool:
        """As the wrapped server does; losses are of one round only."""
        return self.inner.remembers

    def init(self, theta: Vector, fleet: Fleet) -> ScheduleState:
        """Start the wrapped server."""
        return ScheduleState(self.inner.init(theta, fleet))

    def model(self, state: ScheduleState) -> Vector:
        """Return the current model."""
        return self.inner.model(state.inner)

    def orders(
        self, state: ScheduleState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[ScheduleState, dict[DeviceId, Packet]]:
        """Add the size to the orders of the wrapped server."""
        inner, orders = self.inner.orders(state.inner, fleet, round_number, key)
        size = self.initial_size
        if state.first_loss > 0:
            size *= math.sqrt(
                state.first_loss / max(state.latest_loss, state.first_loss * MIN_RELATIVE_LOSS)
            )
        distinct = {id(order): order for order in orders.values()}  # many devices share one
        scheduled = {
            name: replace(order, scalars={**order.scalars, "size": size})
            for name, order in distinct.items()
        }
        return replace(state, inner=inner), {d: scheduled[id(o)] for d, o in orders.items()}

    def check(self, reply: Packet) -> None:
        """Take replies that report a loss."""
        reply.scalar("loss")
        self.inner.check(reply)

    def update(
        self, state: ScheduleState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> ScheduleState:
        """Let the wrapped server step, and remember the mean loss."""
        inner = self.inner.update(state.inner, fleet, replies)
        if not replies:
            return replace(state, inner=inner)
        latest = sum(reply.scalar("loss") for reply in replies.values()) / len(replies)
        return ScheduleState(inner, state.first_loss or latest, latest)

    def forget(
        self, state: ScheduleState, fleet: Fleet, device: DeviceId, replies: Iterable[Packet]
    ) -> ScheduleState:
        """Let the wrapped server take back what it holds."""
        return replace(state, inner=self.inner.forget(state.inner, fleet, device, replies))
