"""Sends the model to the devices, whole or as a coded difference to the model that they hold.

With differences the server keeps one reference model per group of the fleet. Every device in step
holds the reference of its group. When a round opens, the server codes u = theta - reference once
and adds the decoded u to the reference. All devices compute at the new reference. The next u
contains the coding error of this one. Devices in step get the difference, all others get the
whole reference.

If few devices are in step, and in the first round, all devices get a *coded model* instead: theta
itself, coded with at most the error of a difference. It needs no reference.

With a relay, devices get the uploads of all rounds since their own model, if that takes fewer
bytes.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Scalars, theta_of
from aquila.core.packet import Dense, Packet
from aquila.core.quantize_within import quantize_within
from aquila.core.vector import Vector, squared_norm
from aquila.core.wire import pack
from aquila.runtime.options import RunOptions
from aquila.runtime.reference import NO_BASE, ReferenceModel, with_checksum
from aquila.runtime.relay import Relay, pack_rounds

Group = int
ModelRound = Callable[[DeviceId], int]
"""device -> the last round whose model it is known to hold"""
References = Mapping[Group, ReferenceModel]
"""Reference model per group of the fleet."""

MAX_MODEL_ERROR = 2**-8
"""Largest relative error of a coded model, which then takes about 8.5 bits per coordinate."""
MIN_SHARE_OUT_OF_STEP = 0.25
"""Share of the devices without a reference above which the model itself is coded. Below it, whole
models for them and differences for the others usually take fewer bytes."""
ROUNDING = 1 + 1e-6
"""Factor by which rounding may change a squared error."""
TINY = torch.finfo(torch.float64).tiny
"""Smallest divisor, which prevents division by zero."""


def add_models(
    orders: Mapping[DeviceId, Scalars],
    theta: Vector,
    fleet: Fleet,
    round_number: int,
    extra: Scalars | None = None,
) -> dict[DeviceId, Packet]:
    """Return orders with their models. Devices of a group with the same scalars share a packet.

    Args:
        orders: Scalars of the method, per device that takes part.
        theta: The model.
        fleet: Which coordinates each device holds.
        round_number: The round of the orders.
        extra: Further scalars for all devices.
    """
    parts = [Dense(part) for part in fleet.restrict(theta)]
    shared: dict[tuple[Group, int], Packet] = {}
    packets: dict[DeviceId, Packet] = {}
    for device, scalars in orders.items():
        content = fleet.groups[device], id(scalars)
        if content not in shared:
            shared[content] = Packet(round_number, parts[content[0]], {**scalars, **(extra or {})})
        packets[device] = shared[content]
    return packets


def pack_models(packets: Mapping[DeviceId, Packet]) -> dict[DeviceId, bytes]:
    """Return the model frame per device. Each model is packed once."""
    frames: dict[int, bytes] = {}
    for packet in packets.values():
        if id(packet.vector) not in frames:
            frames[id(packet.vector)] = pack(Packet(packet.round, packet.vector))
    return {device: frames[id(packet.vector)] for device, packet in packets.items()}


@dataclass(frozen=True, eq=False)
class Broadcast:
    """The model of a group in one round: its next reference, and the frame per device."""

    reference: ReferenceModel
    frames: Mapping[DeviceId, bytes]

    @property
    def nbytes(self) -> int:
        """Bytes of the frames of all devices."""
        return sum(map(len, self.frames.values()))


@dataclass(frozen=True)
class Receivers:
    """The devices of a group in one round.

    Attributes:
        missed: Per device, how many rounds its model is old.
        share: Share of the fleet.
    """

    missed: Mapping[DeviceId, int]
    share: float

    @property
    def in_step(self) -> list[DeviceId]:
        """The devices that hold the model of the last round."""
        return [device for device, rounds in self.missed.items() if rounds == 1]

    def each(self, frame: bytes) -> dict[DeviceId, bytes]:
        """Return the same frame for each device."""
        return dict.fromkeys(self.missed, frame)


@dataclass(frozen=True)
class DownlinkCoder:
    """Codes models in few bytes, with at most this `error` relative to the change of the model.

    Without an error it only relays uploads.
    """

    error: float

    def __post_init__(self) -> None:
        if not 0 <= self.error < 1:
            raise ValueError(f"downlink_error must be at least 0 and below 1, not {self.error}")

    @classmethod
    def of(cls, options: RunOptions) -> "DownlinkCoder | None":
        """Return the coder of a run, None if it sends whole models."""
        is_needed = options.downlink_error != 0 or options.relay_uploads
        return cls(options.downlink_error) if is_needed else None

    def encode(
        self,
        packets: Mapping[DeviceId, Packet],
        fleet: Fleet,
        references: References,
        model_round: ModelRound,
        relay: Relay | None = None,
    ) -> tuple[dict[DeviceId, bytes], References]:
        """Return the model frame per device, and the references after the round.

        Args:
            packets: Order per device.
            fleet: The fleet; its groups share a reference.
            references: References before the round.
            model_round: The round whose model a device holds.
            relay: Passes the uploads of the last round on; only in a fleet of one group.
        """
        frames: dict[DeviceId, bytes] = {}
        after: dict[Group, ReferenceModel] = {}
        for group, devices in _by_group(packets, fleet).items():
            order, base = packets[devices[0]], references.get(group)
            missed = {device: order.round - model_round(device) for device in devices}
            receivers = Receivers(missed, len(devices) / len(fleet.devices))
            broadcast = self._broadcast(order, base, receivers, relay)
            frames |= broadcast.frames
            after[group] = broadcast.reference
        return frames, after

    def encode_late(
        self,
        packets: Mapping[DeviceId, Packet],
        fleet: Fleet,
        references: References,
        model_round: ModelRound,
    ) -> tuple[dict[DeviceId, bytes], References]:
        """Return models for devices that join a round, and the references after it.

        They are whole, unless relayed uploads tell how an older model has changed.

        Args:
            packets: Order per device that joins.
            fleet: The fleet; its groups share a reference.
            references: References that the other devices of the round compute at.
            model_round: The round whose model a device holds.
        """
        frames: dict[DeviceId, bytes] = {}
        after = dict(references)
        for device, order in packets.items():
            group = fleet.groups[device]
            if group not in after:
                after[group] = with_checksum(theta_of(order))
            frames[device] = _pack_reference(order, after[group], order.round - model_round(device))
        return frames, after

    def _broadcast(
        self,
        order: Packet,
        base: ReferenceModel | None,
        receivers: Receivers,
        relay: Relay | None,
    ) -> Broadcast:
        """Return the broadcast to a group that takes the fewest bytes."""
        in_step = [] if base is None else receivers.in_step
        model_bytes, count = theta_of(order).nbytes, len(receivers.missed)
        out_of_step = count - len(in_step)
        candidates: list[Broadcast] = []
        if relay is not None and base is not None:
            candidates += self._relayed(order, base, receivers, relay)
            if candidates and out_of_step and relay.saves_later(model_bytes, receivers.share):
                return candidates[0]
        if self.error and out_of_step >= MIN_SHARE_OUT_OF_STEP * count:
            candidates += self._coded_model(order, base, receivers)
        if self.error and base is not None and in_step:
            whole_bytes = out_of_step * model_bytes
            if all(whole_bytes < candidate.nbytes for candidate in candidates):
                candidates.append(self._difference(order, base, receivers))
        smallest = min(candidates, key=lambda candidate: candidate.nbytes, default=None)
        if smallest is not None and smallest.nbytes < count * model_bytes:
            return smallest
        reference = with_checksum(theta_of(order))
        return Broadcast(reference, receivers.each(pack_whole(order.round, reference)))

    def _relayed(
        self, order: Packet, base: ReferenceModel, receivers: Receivers, relay: Relay
    ) -> list[Broadcast]:
        """Return the broadcast of the uploads since each device's model.

        A device whose model is too old gets the whole reference. The list is empty if the model
        does not follow from the uploads.
        """
        reference = relay.next_reference(order, base)
        if reference is None:
            if not self.error:
                relay.report_unused(order.round)
            return []
        frames = {
            rounds: _pack_reference(order, reference, rounds)
            for rounds in set(receivers.missed.values())
        }
        of_devices = {device: frames[rounds] for device, rounds in receivers.missed.items()}
        return [Broadcast(reference, of_devices)]

    def _difference(self, order: Packet, base: ReferenceModel, receivers: Receivers) -> Broadcast:
        """Send the change since the last reference, and the whole reference to other devices."""
        codes = quantize_within(theta_of(order) - base.theta, self.error)
        frame = pack(Packet(order.round, codes, refers_to=base.checksum))
        reference, in_step = base.with_difference(codes), receivers.in_step
        needs_whole = len(in_step) < len(receivers.missed)
        whole = pack_whole(order.round, reference) if needs_whole else b""
        return Broadcast(reference, receivers.each(whole) | dict.fromkeys(in_step, frame))

    def _coded_model(
        self, order: Packet, base: ReferenceModel | None, receivers: Receivers
    ) -> list[Broadcast]:
        """Return the broadcast of the coded model itself.

        The list is empty if its error would exceed that of a difference. Only the first model of a
        run has no difference to compare with.
        """
        theta, error, largest = theta_of(order), MAX_MODEL_ERROR, math.inf
        if base is not None:
            largest = self.error * math.sqrt(squared_norm(theta - base.theta))
            error = min(error, largest / max(math.sqrt(squared_norm(theta)), TINY))
        if (base is None and order.round > 0) or error == 0:
            return []
        codes = quantize_within(theta, error)
        decoded = codes.decode()
        if squared_norm(theta - decoded) > ROUNDING * largest**2:  # too many levels are needed
            return []
        frame = pack(Packet(order.round, codes, refers_to=NO_BASE))
        return [Broadcast(with_checksum(decoded), receivers.each(frame))]


def adopted(theta: Vector, fleet: Fleet, references: References) -> Vector:
    """Return the first model as devices have it, if all hold the same coordinates.

    The server then starts from it, too, and the error of a coded model is gone.
    """
    return references[0].theta if references and fleet.slices == (None,) else theta


def _pack_reference(order: Packet, reference: ReferenceModel, missed: int) -> bytes:
    """Return the frame for a device whose model is this many rounds old."""
    if missed <= len(reference.rounds):
        return pack_rounds(order, reference, missed)
    return pack_whole(order.round, reference)


def pack_whole(round_number: int, reference: ReferenceModel) -> bytes:
    """Return the frame of a whole model with its name."""
    return pack(Packet(round_number, Dense(reference.theta), refers_to=reference.checksum))


def _by_group(packets: Iterable[DeviceId], fleet: Fleet) -> dict[Group, list[DeviceId]]:
    groups: dict[Group, list[DeviceId]] = {}
    for device in packets:
        groups.setdefault(fleet.groups[device], []).append(device)
    return groups
