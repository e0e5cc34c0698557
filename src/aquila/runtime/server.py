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
from aquila.runtime.archive import Archive, reply_history
from aquila.runtime.messages import NO_ACK, Ack, Order, ack_of
from aquila.runtime.model_downlink import DownlinkCoder, References, pack_models
from aquila.runtime.nan_guard import NonFiniteError
from aquila.runtime.norm_limit import NormLimit
from aquila.runtime.reference import ReferenceModel


class ServerSession:
    """The server: opens a round, takes replies one by one, closes the round.

    Where `participation` is below 1, that share of a round's orders is drawn and sent, at least
    one; to the method the other devices are ones whose replies were lost. Without an `archive` a
    device that starts anew is refused, where the method's server remembers what it sent before.
    A `limit` bounds the norm of uploads. With `downlink_error` above 0 devices that replied to
    the last round are sent the model as a difference, coded up to this relative error.
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
        limit: NormLimit | None = None,
        downlink_error: float = 0.0,
    ) -> None:
        if not 0 < participation <= 1:
            raise ValueError(f"participation must be above 0 and at most 1, not {participation}")
        if limit is not None:
            limit.check(method.server)
        self.half = method.server
        self.fleet = fleet.with_participation(participation)
        self.round = 0
        self.acks = [NO_ACK] * len(fleet.devices)
        self.state: Any = self.half.init(theta, self.fleet)
        self._seed = seed
        self._unpack_reply = unpack_reply
        self._participation = participation
        self._limit = limit
        self._downlink_coder = DownlinkCoder(downlink_error) if downlink_error != 0 else None
        self.references: References = {}
        self._open_references: References = {}
        self._orders: dict[DeviceId, Order] = {}
        self._open_state: Any = None
        self._replies: dict[DeviceId, Packet] = {}
        self._reply_acks: dict[DeviceId, Ack] = {}
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
            self._open_state, packets = self.half.orders(self.state, self.fleet, self.round, key)
            packets = self._sample_participants(packets)
            self._require_finite(packets)
            self._orders = self._pack_orders(packets)
        return self._orders

    def _pack_orders(self, packets: dict[DeviceId, Packet]) -> dict[DeviceId, Order]:
        """Turn orders into bytes; those that say the same to many devices are packed once."""
        models = self._model_frames(packets)
        same: dict[tuple[int, Ack], Order] = {}
        orders: dict[DeviceId, Order] = {}
        for device, packet in packets.items():
            ack = self.acks[device]
            content = id(packet), ack
            if content not in same:
                control = Packet(
                    packet.round, None, packet.scalars, ack.round, answers=ack.checksum
                )
                same[content] = Order(models[device], pack(control))
            orders[device] = same[content]
        return orders

    def _model_frames(self, packets: dict[DeviceId, Packet]) -> dict[DeviceId, bytes]:
        """Return the frame of the model for each order; the ack says who gets it whole."""
        if self._downlink_coder is None:
            return pack_models(packets)
        frames, self._open_references = self._downlink_coder.encode(
            packets, self.fleet, self.references, self._is_in_step
        )
        return frames

    def _is_in_step(self, device: DeviceId) -> bool:
        """Whether a device has computed at the reference, as its reply to the last round tells."""
        return self.acks[device].round == self.round - 1

    def reference_for(self, device: DeviceId) -> ReferenceModel | None:
        """Return the model that a device must hold to follow the next difference."""
        return self.references.get(self.fleet.groups[device]) if self._is_in_step(device) else None

    def _sample_participants(self, packets: dict[DeviceId, Packet]) -> dict[DeviceId, Packet]:
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
        if not self._answers_order(device, reply):
            raise WireError(f"reply to another order than that of round {self.round}")
        if not reply.refused:
            self.half.check(reply)
            if self._is_fresh_start(device, reply):
                self._reply_history(device)
        ack = ack_of(reply, frame)
        if self._limit is not None:
            reply = self._limit.apply(device, reply)
        self._replies[device], self._reply_acks[device] = reply, ack
        if self._archive is not None:
            self._frames[device] = frame

    def _answers_order(self, device: DeviceId, reply: Packet) -> bool:
        """Whether a reply answers the very order that the device was sent in this round."""
        return reply.answers == self._orders[device].checksum

    def _is_fresh_start(self, device: DeviceId, reply: Packet) -> bool:
        """Whether something the device sent before must first be taken back."""
        return reply.fresh and self.half.remembers and self.acks[device] != NO_ACK

    def _reply_history(self, device: DeviceId) -> list[bytes]:
        """Return what the device has sent since it began; WireError if that is not known."""
        if self._archive is None:
            raise WireError(
                f"device {device} starts anew, but without an archive what it sent before cannot "
                "be taken back"
            )
        return reply_history(self._archive, device, self.acks[device], self.round)

    def close_round(self) -> dict[DeviceId, Packet]:
        """Apply the replies that came, move on to the next round, and return them."""
        if not self._orders:
            raise RuntimeError(f"round {self.round} has not been opened")
        replies = {d: self._replies[d] for d in sorted(self._replies)}
        applied = {d: r for d, r in replies.items() if not r.refused}
        state = self._open_state
        for device, reply in applied.items():
            if self._is_fresh_start(device, reply):
                state = self._remove_device(state, device)
        state = self.half.update(state, self.fleet, applied)
        if not torch.isfinite(self.half.model(state)).all():
            raise NonFiniteError(
                f"the model is no longer finite after round {self.round}; a smaller alpha may help"
            )
        self._archive_replies(applied)
        for device in applied:
            self.acks[device] = self._reply_acks[device]
        self.state, self.round = state, self.round + 1
        self.references = self._open_references
        self._reset_round()
        return replies

    def _remove_device(self, state: Any, device: DeviceId) -> Any:
        """Take out of the state what the device has sent since it began."""
        dimension, place = self.fleet.dimension_of(device), self.theta.device
        replies = (unpack(frame, dimension, place) for frame in self._reply_history(device))
        return self.half.forget(state, self.fleet, device, replies)

    def _archive_replies(self, applied: dict[DeviceId, Packet]) -> None:
        """Archive the replies; only then are they the server's to acknowledge."""
        if self._archive is None:
            return
        if self._archive_may_be_ahead:
            self._archive.rewind(self.round)
        self._archive_may_be_ahead = True
        for device in applied:
            self._archive.append(device, self._frames[device])
        self._archive_may_be_ahead = False

    def _reset_round(self) -> None:
        self._orders, self._replies, self._reply_acks, self._frames = {}, {}, {}, {}

    def _require_finite(self, packets: dict[DeviceId, Packet]) -> None:
        numbers = (value for packet in packets.values() for value in packet.scalars.values())
        if not all(map(math.isfinite, numbers)):
            raise NonFiniteError(
                f"the last step before round {self.round} is too large to be measured; "
                "a smaller alpha may help"
            )

    def restore(
        self, state: Any, round_number: int, acks: list[Ack], references: References | None = None
    ) -> None:
        """Continue from a saved round; what the archive holds of later ones no longer counts."""
        self.state, self.round, self.acks = state, round_number, acks
        self.references = references or {}
        self._reset_round()
        self._archive_may_be_ahead = True
