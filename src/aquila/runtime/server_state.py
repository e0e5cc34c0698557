"""What a server session keeps: between two rounds, in an open round and in a query."""

from dataclasses import dataclass, field, replace
from typing import Any

from aquila.core.fleet import DeviceId
from aquila.core.method import Scalars
from aquila.core.packet import Packet
from aquila.core.vector import Vector
from aquila.runtime.fleet_health import FleetHealth
from aquila.runtime.frame_spool import ReadFrame
from aquila.runtime.messages import Ack, Order
from aquila.runtime.model_downlink import References
from aquila.runtime.relay import RoundUploads
from aquila.runtime.reply_archive import Position
from aquila.runtime.restart_limit import Restarts
from aquila.runtime.waiting_uploads import WaitingUploads


@dataclass(frozen=True)
class ServerSnapshot:
    """Everything that a server must save between two rounds to continue after a restart.

    Args:
        theta: The model.
        state: State of the method's server half.
        moments: State of the server optimizer.
        round: Number of the next round.
        acks: Acknowledgement per device.
        references: Model that the devices in step hold, per group of the fleet.
        losses: Loss that each device last reported, for the selection of devices.
        health: Failures, quarantine and norms of the devices.
        positions: Position in the archive of replies per device; empty without an archive.
        restarts: Recent restarts per device; empty without an archive.
        uploads: Uploads of the last round, if the next one may relay them.
        unanswered: Orders without an applied reply since the last one, per device.
    """

    theta: Vector
    state: Any
    moments: Any
    round: int
    acks: tuple[Ack, ...]
    references: References
    losses: tuple[float, ...]
    health: FleetHealth
    positions: tuple[Position, ...] = ()
    restarts: tuple[Restarts, ...] = ()
    uploads: RoundUploads | None = None
    unanswered: tuple[int, ...] = ()


@dataclass(frozen=True)
class ReceivedReply:
    """A valid reply to the open round, with its frame and the norm of its upload."""

    reply: Packet
    ack: Ack
    read_frame: ReadFrame
    norm: float = 0.0


@dataclass(frozen=True)
class OpenRound:
    """A round between its orders and its update.

    `offered` has the scalars of all devices that the method allows to take part. `orders` are
    those of the devices that were selected. `replaced` counts the failed devices in whose place
    others were drawn, in `draws` draws.
    """

    state: Any
    references: References
    orders: dict[DeviceId, Order]
    offered: dict[DeviceId, Scalars]
    uploads: WaitingUploads
    received: dict[DeviceId, ReceivedReply] = field(default_factory=dict)
    replaced: int = 0
    draws: int = 0

    def with_replacements(
        self, orders: dict[DeviceId, Order], references: References
    ) -> "OpenRound":
        """Return the round with orders to devices that replace failed ones."""
        return replace(
            self, orders=self.orders | orders, references=references,
            replaced=self.replaced + len(orders), draws=self.draws + 1,
        )  # fmt: skip


@dataclass(frozen=True)
class OpenQuery:
    """A query for the losses of candidates, before the orders of a round."""

    orders: dict[DeviceId, Order]
    losses: dict[DeviceId, float] = field(default_factory=dict)
