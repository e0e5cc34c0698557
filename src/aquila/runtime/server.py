"""The server's end of the wire: rounds that are opened, filled with replies, and closed."""

import math
from collections.abc import Callable
from typing import Any

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method
from aquila.core.packet import Packet, WireError
from aquila.core.random import Key, Purpose
from aquila.core.vector import Vector
from aquila.core.wire import pack, unpack
from aquila.runtime.archive import Archive, history
from aquila.runtime.broadcast import Differences, References, whole
from aquila.runtime.finite import NonFiniteError
from aquila.runtime.held import Held
from aquila.runtime.limit import Limit
from aquila.runtime.messages import NOTHING, Ack, Order, ack_of


class ServerSession:
    """The server: opens a round, takes replies one by one, closes the round.

    Where `participation` is below 1, that share of a round's orders is drawn and sent, at least
    one; to the method the other devices are ones whose replies were lost. Without an `archive` a
    device that starts anew is refused, where the method's server remembers what it sent before.
    A `limit` bounds the norm of uploads. With `downlink` above 0 devices that replied to the last
    round are sent the model as a difference, coded up to this relative error.
    """

    def __init__(
        self,
        method: Method,
        theta: Vector,
        fleet: Fleet,
        seed: int,
        unpack_reply: Callable[..., Packet] = unpack,
        participation: float = 1.0,
        archive: Archive | None = None,
        limit: Limit | None = None,
        downlink: float = 0.0,
    ) -> None:
        if not 0 < participation <= 1:
            raise ValueError(f"participation must be above 0 and at most 1, not {participation}")
        if limit is not None:
            limit.check(method.server)
        self.half = method.server
        self.fleet = fleet.taking_part(participation)
        self.round = 0
        self.acks = [NOTHING] * len(fleet.devices)
        self.state: Any = self.half.init(theta, self.fleet)
        self._seed = seed
        self._unpack_reply = unpack_reply
        self._participation = participation
        self._limit = limit
        self._differences = Differences(downlink) if downlink != 0 else None
        self.references: References = {}
        self._opened_references: References = {}
        self._orders: dict[DeviceId, Order] = {}
        self._opened: Any = None
        self._replies: dict[DeviceId, Packet] = {}
        self._names: dict[DeviceId, Ack] = {}
        self._frames: dict[DeviceId, bytes] = {}
        self._archive = archive if self.half.remembers else None
        self._archive_may_be_ahead = True

    @property
    def theta(self) -> Vector:
        """The current model."""
        return self.half.model(self.state)

    def open_round(self) -> dict[DeviceId, Order]:
        """Return the orders of the round; asked again, return the same ones."""
        if not self._orders:
            key = Key((self._seed, self.round, Purpose.SERVER))
            self._opened, packets = self.half.orders(self.state, self.fleet, self.round, key)
            packets = self._drawn(packets)
            self._demand_finite(packets)
            self._orders = self._packed(packets)
        return self._orders

    def _packed(self, packets: dict[DeviceId, Packet]) -> dict[DeviceId, Order]:
        """Turn orders into bytes; those that say the same to many devices are packed once."""
        models = self._models(packets)
        same: dict[tuple[int, Ack], Order] = {}
        orders: dict[DeviceId, Order] = {}
        for device, packet in packets.items():
            ack = self.acks[device]
            wording = id(packet), ack
            if wording not in same:
                words = Packet(packet.round, None, packet.scalars, ack.round, answers=ack.reply)
                same[wording] = Order(models[device], pack(words))
            orders[device] = same[wording]
        return orders

    def _models(self, packets: dict[DeviceId, Packet]) -> dict[DeviceId, bytes]:
        """Return the frame of the model for each order; the ack says who gets it whole."""
        if self._differences is None:
            return whole(packets)
        frames, self._opened_references = self._differences.frames(
            packets, self.fleet, self.references, self._is_in_step
        )
        return frames

    def _is_in_step(self, device: DeviceId) -> bool:
        """Whether a device has computed at the reference, as its reply to the last round tells."""
        return self.acks[device].round == self.round - 1

    def held_by(self, device: DeviceId) -> Held | None:
        """Return the model that a device must hold to follow the next difference."""
        return self.references.get(self.fleet.groups[device]) if self._is_in_step(device) else None

    def _drawn(self, packets: dict[DeviceId, Packet]) -> dict[DeviceId, Packet]:
        """Return the orders of the devices that take part."""
        if self._participation == 1:
            return packets
        count = max(1, round(self._participation * len(packets)))
        key = Key((self._seed, self.round, Purpose.PARTICIPATION))
        return {device: packets[device] for device in key.sample(list(packets), count)}

    def receive(self, device: DeviceId, frame: bytes) -> None:
        """Take a reply to the open round; raise WireError, and change nothing, if it is unsound."""
        if device not in self._orders:
            raise WireError(f"device {device} has no order in round {self.round}")
        if device in self._replies:
            raise WireError(f"device {device} has already replied in round {self.round}")
        dimension = self.fleet.dimension_of(device)
        reply = self._unpack_reply(frame, dimension=dimension, device=self.theta.device)
        if reply.round != self.round:
            raise WireError(f"reply to round {reply.round} in round {self.round}")
        if not self._is_answered_by(device, reply):
            raise WireError(f"reply to another order than that of round {self.round}")
        if not reply.refused:
            self.half.check(reply)
            if self._starts_anew(device, reply):
                self._history(device)
        name = ack_of(reply, frame)
        if self._limit is not None:
            reply = self._limit.applied(device, reply)
        self._replies[device], self._names[device] = reply, name
        if self._archive is not None:
            self._frames[device] = frame

    def _is_answered_by(self, device: DeviceId, reply: Packet) -> bool:
        """Whether a reply answers the very order that the device was sent in this round."""
        return reply.answers == self._orders[device].checksum

    def _starts_anew(self, device: DeviceId, reply: Packet) -> bool:
        """Whether something the device sent before must first be taken back."""
        return reply.fresh and self.half.remembers and self.acks[device] != NOTHING

    def _history(self, device: DeviceId) -> list[bytes]:
        """Return what the device has sent since it began; WireError if that is not known."""
        if self._archive is None:
            raise WireError(
                f"device {device} starts anew, but without an archive what it sent before cannot "
                "be taken back"
            )
        return history(self._archive, device, self.acks[device], self.round)

    def close_round(self) -> dict[DeviceId, Packet]:
        """Apply the replies that came, move on to the next round, and return them."""
        if not self._orders:
            raise RuntimeError(f"round {self.round} has not been opened")
        replies = {d: self._replies[d] for d in sorted(self._replies)}
        applied = {d: r for d, r in replies.items() if not r.refused}
        state = self._opened
        for device, reply in applied.items():
            if self._starts_anew(device, reply):
                state = self._without(state, device)
        state = self.half.update(state, self.fleet, applied)
        if not torch.isfinite(self.half.model(state)).all():
            raise NonFiniteError(
                f"the model is no longer finite after round {self.round}; a smaller alpha may help"
            )
        self._store(applied)
        for device in applied:
            self.acks[device] = self._names[device]
        self.state, self.round = state, self.round + 1
        self.references = self._opened_references
        self._begin()
        return replies

    def _without(self, state: Any, device: DeviceId) -> Any:
        """Take out of the state what the device has sent since it began."""
        dimension, place = self.fleet.dimension_of(device), self.theta.device
        replies = (unpack(frame, dimension, place) for frame in self._history(device))
        return self.half.forget(state, self.fleet, device, replies)

    def _store(self, applied: dict[DeviceId, Packet]) -> None:
        """Archive the replies; only then are they the server's to acknowledge."""
        if self._archive is None:
            return
        if self._archive_may_be_ahead:
            self._archive.rewind(self.round)
        self._archive_may_be_ahead = True
        for device in applied:
            self._archive.append(device, self._frames[device])
        self._archive_may_be_ahead = False

    def _begin(self) -> None:
        self._orders, self._replies, self._names, self._frames = {}, {}, {}, {}

    def _demand_finite(self, packets: dict[DeviceId, Packet]) -> None:
        numbers = (value for packet in packets.values() for value in packet.scalars.values())
        if not all(map(math.isfinite, numbers)):
            raise NonFiniteError(
                f"the last step before round {self.round} is too large to be measured; "
                "a smaller alpha may help"
            )

    def restore(
        self, state: Any, round: int, acks: list[Ack], references: References | None = None
    ) -> None:
        """Continue from a saved round; what the archive holds of later ones no longer counts."""
        self.state, self.round, self.acks = state, round, acks
        self.references = references or {}
        self._begin()
        self._archive_may_be_ahead = True
