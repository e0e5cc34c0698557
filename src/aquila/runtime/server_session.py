"""The server's end of the protocol: opens rounds, receives replies and closes rounds."""

import math
from collections.abc import Collection
from functools import partial
from typing import Any

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method, Scalars, check_reply, has_memory
from aquila.core.packet import NEVER, Packet, WireError
from aquila.core.random import Key, Purpose
from aquila.core.vector import Vector, max_norm
from aquila.runtime.device_history import (
    DeviceHistories,
    archive_state,
    require_histories,
)
from aquila.runtime.fleet_health import check_scalars
from aquila.runtime.linked_fleet import LinkedFleet
from aquila.runtime.loss_reports import LossReports
from aquila.runtime.messages import NO_ACK, Order, ack_of, rate_scalars
from aquila.runtime.model_downlink import (
    DownlinkCoder,
    References,
    add_models,
    adopted,
    pack_models,
)
from aquila.runtime.nan_guard import NonFiniteError
from aquila.runtime.norm_limit import NormLimit
from aquila.runtime.options import RunOptions
from aquila.runtime.order_packing import OrderPacker, pack_orders, require_finite
from aquila.runtime.reply_archive import ReplyArchive
from aquila.runtime.reply_reader import ReplyReader
from aquila.runtime.round_guard import RoundGuard
from aquila.runtime.selection import Selector
from aquila.runtime.server_optimizer import Descent
from aquila.runtime.server_state import OpenQuery, OpenRound, ReceivedReply, ServerSnapshot
from aquila.runtime.services import Services
from aquila.runtime.unanswered_orders import UnansweredOrders
from aquila.runtime.upload_keeper import UploadKeeper
from aquila.runtime.waiting_uploads import WaitingUploads


class ServerSession:
    """A server that opens a round, receives replies one by one, and closes the round.

    With `options.participation` below 1, each round sends that fraction of its orders, at least
    one. To the method, the replies of the other devices are lost.

    The session owns the model. The server optimizer of the options applies the method's steps.

    Args:
        method: The method; the session runs its server half.
        theta: The initial model.
        fleet: Which coordinates each device holds.
        seed: Seed of the run.
        options: `participation`, `downlink_error` and the training options apply here.
        archive: Keeps applied replies. Without one, a server with memory refuses devices that
            restart from their initial state.
        limit: Limit on the norm of uploads.
        services: Functions that the caller replaces.
    """

    def __init__(
        self,
        method: Method,
        theta: Vector,
        fleet: Fleet,
        seed: int,
        options: RunOptions = RunOptions(),
        *,
        archive: ReplyArchive | None = None,
        limit: NormLimit | None = None,
        services: Services = Services(),
    ) -> None:
        if limit is not None:
            limit.check(method.server)
        self.half = method.server
        self._replies = ReplyReader(fleet, method.reader, theta.device, limit)
        self._read = partial(self._replies.read, unpack=services.unpack)
        self.fleet = fleet.with_participation(options.participation)
        self._linked_fleet = LinkedFleet.of(method, self.fleet, services.links)
        self.round = 0
        self.acks = [NO_ACK] * len(fleet.devices)
        self.theta = theta
        self.state: Any = self.half.init(theta, self.fleet)
        self._descent = Descent.of(options)
        self.moments: Any = self._descent.init(theta)
        self.references: References = {}
        self._upload_keeper = UploadKeeper(options.relay_uploads, fleet, partial(self._read, 0))
        self._unanswered = UnansweredOrders(len(fleet.devices))
        self._open: OpenRound | None = None
        self._seed, self._services = seed, services
        self._selector = Selector.of(options, len(fleet.devices), seed, services.secret_key)
        self.guard = RoundGuard(method, fleet, seed, options, services)
        self._losses = LossReports(self._selector, len(fleet.devices))
        self._packer = OrderPacker(self.fleet, DownlinkCoder.of(options))
        self.histories: DeviceHistories | None = None
        if archive is not None and has_memory(self.half):
            self.histories = DeviceHistories(archive, self.half, self._replies, theta.dtype)

    @property
    def evaluated_model(self) -> Vector:
        """The model to evaluate and save: theta, or the average if the options ask for one."""
        return self._descent.evaluated_model(self.moments, self.theta)

    def open_query(self) -> dict[DeviceId, Order]:
        """Return the orders that ask candidates for their losses, before the round is opened.

        Most rules of selection need none. Repeated calls return the same orders.
        """
        query = self._selector.query
        if query is None or self._open is not None:
            return {}
        if self._losses.query is None:
            _, orders = self._method_orders()
            excluded = self.guard.excluded(self.round, orders)
            chosen = self._selector.candidates_of(list(orders), self.fleet, self.round, excluded)
            asked = dict.fromkeys(chosen, query)
            packets = add_models(asked, self.theta, self.fleet, self.round)
            self._losses.query = OpenQuery(pack_orders(packets, pack_models(packets), self.acks))
        return self._losses.query.orders

    def receive_loss(self, device: DeviceId, frame: bytes) -> None:
        """Accept the answer to a query; raise WireError and change nothing if it is invalid."""
        self._losses.order_of(device, self.round)
        answer = self._services.unpack(frame, dimension=self.fleet.dimension_of(device))
        self._losses.add_answer(device, answer, self.round)

    def open_round(self, reachable: Collection[DeviceId] | None = None) -> dict[DeviceId, Order]:
        """Return the orders of the round. Repeated calls return the same orders.

        `reachable` are the connected devices, by default all. If all of them are in quarantine,
        they take part nevertheless.
        """
        if self._open is None:
            state, scalars = self._method_orders()
            chosen = self._select(scalars, reachable)
            if self._linked_fleet.links is not None and len(chosen) < len(scalars):
                state, scalars = self._method_orders(chosen)  # rates depend on who transmits
                chosen = {device: scalars[device] for device in chosen}
            packets = self._add_models(chosen)
            require_finite(packets, self.round)
            orders, references = self._packer.pack(
                packets, self.acks, self.references, self._model_round, self._upload_keeper.relay
            )
            if self.round == 0:
                self.theta = adopted(self.theta, self.fleet, references)
            waiting = WaitingUploads(self._services.new_spool())
            self._open = OpenRound(state, references, orders, scalars, waiting)
        return self._open.orders

    def report_failure(self, device: DeviceId, reason: str) -> None:
        """Note that a device cannot take part, so that it is replaced and put into quarantine."""
        self.guard.failed[device] = reason

    def open_replacements(
        self, reachable: Collection[DeviceId] | None = None
    ) -> dict[DeviceId, Order]:
        """Return orders to devices drawn in place of those that failed since the last draw."""
        opened = self._open
        if opened is None or self._linked_fleet.links is not None:  # orders depend on all links
            return {}
        drawn = self.guard.replacements(opened, self._selector, self.round, reachable)
        if not drawn:
            return {}
        packets = self._add_models({device: opened.offered[device] for device in drawn})
        orders, references = self._packer.pack_late(
            packets, self.acks, opened.references, self._model_round
        )
        self._open = opened.with_replacements(orders, references)
        return orders

    def fatal_reason(self, reachable: Collection[DeviceId] | None = None) -> str | None:
        """Return why the run cannot go on: every device of the round failed and none is left."""
        opened = self._open
        return None if opened is None else self.guard.fatal_reason(opened, self.round, reachable)

    def receive(self, device: DeviceId, frame: bytes) -> None:
        """Accept a reply to the open round; raise WireError and change nothing if it is invalid.

        Threads may call this at the same time for different devices.
        """
        if self._open is None or device not in self._open.orders:
            raise WireError(f"device {device} has no order in round {self.round}")
        if device in self._open.received:
            raise WireError(f"device {device} has already replied in round {self.round}")
        reply = self._read(device, frame)
        if reply.round != self.round:
            raise WireError(f"a reply to round {reply.round} arrived in round {self.round}")
        if not self._answers_order(reply, self._open.orders[device]):
            raise WireError(f"the reply answers another order than that of round {self.round}")
        check_scalars(device, reply.scalars)
        if not reply.refused:
            check_reply(self.half, reply)
            if self._is_fresh_start(device, reply):
                self.guard.check_restart(self.histories, device, self.round)
        ack, reply = ack_of(reply, frame), self._replies.limited(device, reply)
        norm = self.guard.norm_of(reply)
        read_again = partial(self._replies.read_limited, device, unpack=self._services.unpack)
        reply, read_frame = self._open.uploads.keep(reply, frame, read_again)
        read_frame = self._upload_keeper.frame_of(read_frame, is_needed=self.histories is not None)
        self._open.received[device] = ReceivedReply(reply, ack, read_frame, norm)

    def discard(self, device: DeviceId) -> None:
        """Drop a reply that was received in the open round, as if it had been lost."""
        if self._open is not None:
            self._open.received.pop(device, None)

    def close_round(self) -> dict[DeviceId, Packet]:
        """Apply the received replies, advance to the next round, and return the replies."""
        if self._open is None:
            raise RuntimeError(f"round {self.round} has not been opened")
        received = self.guard.screen(dict(sorted(self._open.received.items())))
        applied = {d: r for d, r in received.items() if not r.reply.refused}
        state = self._open.state
        restarted = {d for d, r in applied.items() if self._is_fresh_start(d, r.reply)}
        for device in sorted(restarted):
            state = require_histories(self.histories, device).subtract(state, device)
        replies = self.guard.release(applied, self._open.orders, self.round, self.theta)
        fleet = self._linked_fleet.in_round(self.round, self._open.orders)
        state, step = self.half.update(state, fleet, replies)
        moments, theta = self._descent.apply(self.moments, self.theta, step, self.round)
        if not math.isfinite(max_norm(theta)):
            raise NonFiniteError(
                f"the model is not finite after round {self.round}; try a smaller alpha"
            )
        if self.histories is not None:
            self.histories.append(applied, restarted, self.round)
        for device, entry in applied.items():
            self.acks[device] = entry.ack
        self._unanswered.close_round(self._open.orders, applied, {*received, *self.guard.failed})
        self.theta, self.state, self.moments = theta, state, moments
        self._upload_keeper.keep(applied, theta.nbytes)
        self.guard.close(self.round, applied)
        self.round, self.references = self.round + 1, self._open.references
        self._losses.add_replies(replies)
        self._open = self._losses.query = None
        return {device: entry.reply for device, entry in received.items()}

    def can_follow(self, device: DeviceId) -> bool:
        """Return whether the next order of a device may build on the model that it holds."""
        reference = self.references.get(self.fleet.groups[device])
        last = self.round - 1 - len(reference.rounds) if reference else self.round
        return self._model_round(device) >= last

    def snapshot(self) -> ServerSnapshot:
        """Return everything that `restore` needs, as of the last closed round."""
        return ServerSnapshot(
            self.theta, self.state, self.moments, self.round, tuple(self.acks), self.references,
            tuple(self._losses.latest), self.guard.health, *archive_state(self.histories),
            uploads=self._upload_keeper.uploads, unanswered=tuple(self._unanswered.counts),
        )  # fmt: skip

    def restore(self, saved: ServerSnapshot) -> None:
        """Continue from a snapshot. Archived replies of later rounds no longer count."""
        self.theta, self.state, self.moments = saved.theta, saved.state, saved.moments
        self.round, self.acks, self.references = saved.round, list(saved.acks), saved.references
        self._upload_keeper.uploads, self._unanswered.counts = saved.uploads, list(saved.unanswered)
        self._losses.latest = list(saved.losses)
        self.guard.health, self.guard.failed = saved.health, {}
        self._open = self._losses.query = None
        if self.histories is not None:
            self.histories.restore(saved.positions, saved.restarts)

    def _method_orders(
        self, devices: Collection[DeviceId] | None = None
    ) -> tuple[Any, dict[DeviceId, Scalars]]:
        """Return the method's state and its scalars per device that may take part, default all."""
        key = Key((self._seed, self.round, Purpose.SERVER))
        fleet = self._linked_fleet.in_round(self.round, devices)
        return self.half.orders(self.state, fleet, self.round, key)

    def _select(
        self, orders: dict[DeviceId, Scalars], reachable: Collection[DeviceId] | None
    ) -> dict[DeviceId, Scalars]:
        """Return the orders of the devices that take part."""
        excluded = self.guard.excluded(self.round, orders, reachable)
        chosen = self._selector.choose(
            list(orders), self.fleet, self._losses.known, self.round, excluded
        )
        return {device: orders[device] for device in chosen}

    def _add_models(self, orders: dict[DeviceId, Scalars]) -> dict[DeviceId, Packet]:
        """Add the model to the scalars of the method, and the factor of the local rate."""
        factor = rate_scalars(self._descent.lr_factor(self.round))
        extra = {**self._selector.order_scalars, **factor}
        return add_models(orders, self.theta, self.fleet, self.round, extra)

    def _model_round(self, device: DeviceId) -> int:
        """Return the last round whose model the device holds, as far as the server knows."""
        return NEVER if self._unanswered.are_too_many(device) else self.acks[device].round

    def _answers_order(self, reply: Packet, order: Order) -> bool:
        return reply.refers_to == order.checksum

    def _is_fresh_start(self, device: DeviceId, reply: Packet) -> bool:
        """Whether earlier replies of the device must be subtracted before this one is applied."""
        return reply.fresh and has_memory(self.half) and self.acks[device] != NO_ACK
