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
from dataclasses import dataclass, replace

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Scalars, theta_of
from aquila.core.packet import Dense, Packet
from aquila.core.quantize_within import quantize_within
from aquila.core.state import Arrays
from aquila.core.vector import Vector, squared_norm
from aquila.core.wire import pack
from aquila.runtime.reference import NO_BASE, ReferenceModel, with_checksum
from aquila.runtime.relay import (
    RELAY_PREFIX,
    Relay,
    pack_rounds,
    rounds_from_arrays,
    rounds_to_arrays,
)

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

REFERENCE_PREFIX = "reference."
"""Prefix of the array names of saved references."""


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
class DownlinkCoder:
    """Codes models in few bytes, with at most this `error` relative to the change of the model.

    Without an error it only relays uploads.
    """

    error: float

    def __post_init__(self) -> None:
        if not 0 <= self.error < 1:
            raise ValueError(f"downlink_error must be at least 0 and below 1, not {self.error}")

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
            relay: Passes the uploads of the last round on, in a fleet of one group.
        """
        relay = relay if len(fleet.slices) == 1 else None
        frames: dict[DeviceId, bytes] = {}
        after: dict[Group, ReferenceModel] = {}
        for group, devices in _by_group(packets, fleet).items():
            order, base = packets[devices[0]], references.get(group)
            broadcast = self._broadcast(order, base, devices, model_round, relay)
            frames |= broadcast.frames
            after[group] = broadcast.reference
        return frames, after

    def encode_late(
        self, packets: Mapping[DeviceId, Packet], fleet: Fleet, references: References
    ) -> tuple[dict[DeviceId, bytes], References]:
        """Return whole models for devices that join a round, and the references after it.

        Args:
            packets: Order per device that joins.
            fleet: The fleet; its groups share a reference.
            references: References that the other devices of the round compute at.
        """
        frames: dict[DeviceId, bytes] = {}
        after = dict(references)
        for device, order in packets.items():
            group = fleet.groups[device]
            if group not in after:
                after[group] = with_checksum(theta_of(order))
            frames[device] = pack_whole(order.round, after[group])
        return frames, after

    def _broadcast(
        self,
        order: Packet,
        base: ReferenceModel | None,
        devices: list[DeviceId],
        model_round: ModelRound,
        relay: Relay | None,
    ) -> Broadcast:
        """Return the broadcast to a group that takes the fewest bytes."""
        last = order.round - 1
        followers = [d for d in devices if base is not None and model_round(d) == last]
        model_bytes, out_of_step = theta_of(order).nbytes, len(devices) - len(followers)
        candidates: list[Broadcast] = []
        if relay is not None and base is not None:
            candidates += self._relayed(order, base, devices, model_round, relay)
        if self.error and out_of_step >= MIN_SHARE_OUT_OF_STEP * len(devices):
            candidates += self._coded_model(order, base, devices)
        if self.error and base is not None and followers:
            whole_bytes = out_of_step * model_bytes
            if all(whole_bytes < candidate.nbytes for candidate in candidates):
                candidates.append(self._difference(order, base, devices, followers))
        smallest = min(candidates, key=lambda candidate: candidate.nbytes, default=None)
        if smallest is not None and smallest.nbytes < len(devices) * model_bytes:
            return smallest
        reference = with_checksum(theta_of(order))
        return Broadcast(reference, dict.fromkeys(devices, pack_whole(order.round, reference)))

    def _relayed(
        self,
        order: Packet,
        base: ReferenceModel,
        devices: list[DeviceId],
        model_round: ModelRound,
        relay: Relay,
    ) -> list[Broadcast]:
        """Send the uploads since the model of each device; no way if they do not tell the change.

        Devices whose model is too old get the whole reference.
        """
        reference = relay.next_reference(order, base)
        if reference is None:
            if not self.error:
                relay.report_misfit(order.round)
            return []
        missed = {device: order.round - model_round(device) for device in devices}
        frames = {
            rounds: pack_rounds(order, reference, rounds)
            if rounds <= len(reference.rounds)
            else pack_whole(order.round, reference)
            for rounds in set(missed.values())
        }
        return [Broadcast(reference, {device: frames[rounds] for device, rounds in missed.items()})]

    def _difference(
        self,
        order: Packet,
        base: ReferenceModel,
        devices: list[DeviceId],
        followers: list[DeviceId],
    ) -> Broadcast:
        """Send the change since the last reference, and the whole reference to other devices."""
        codes = quantize_within(theta_of(order) - base.theta, self.error)
        frame = pack(Packet(order.round, codes, refers_to=base.checksum))
        reference = base.with_difference(codes)
        whole = pack_whole(order.round, reference) if len(followers) < len(devices) else b""
        return Broadcast(reference, dict.fromkeys(devices, whole) | dict.fromkeys(followers, frame))

    def _coded_model(
        self, order: Packet, base: ReferenceModel | None, devices: list[DeviceId]
    ) -> list[Broadcast]:
        """Send the model itself, coded; no way if its error would exceed that of a difference.

        Only the first model of a run has no difference to compare with.
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
        return [Broadcast(with_checksum(decoded), dict.fromkeys(devices, frame))]


def adopted(theta: Vector, fleet: Fleet, references: References) -> Vector:
    """Return the first model as devices have it, if all hold the same coordinates.

    The server then starts from it, too, and the error of a coded model is gone.
    """
    return references[0].theta if references and fleet.slices == (None,) else theta


def pack_whole(round_number: int, reference: ReferenceModel) -> bytes:
    """Return the frame of a whole model with its name."""
    return pack(Packet(round_number, Dense(reference.theta), refers_to=reference.checksum))


def references_to_arrays(references: References) -> Arrays:
    """Return references as arrays. Their checksums are computed again when they are loaded."""
    arrays: Arrays = {}
    for group, reference in references.items():
        arrays[f"{REFERENCE_PREFIX}{group}"] = reference.theta.cpu().numpy()
        arrays |= rounds_to_arrays(reference.rounds, _rounds_prefix(group))
    return arrays


def references_from_arrays(arrays: Arrays, fleet: Fleet, like: Vector) -> References:
    """Return saved references, or raise ValueError if they do not match the fleet."""
    references: dict[Group, ReferenceModel] = {}
    for group in range(len(fleet.slices)):
        name = f"{REFERENCE_PREFIX}{group}"
        if name in arrays:
            expected = (fleet.dimension_of_group(group),)
            if arrays[name].shape != expected:
                raise ValueError(f"the saved {name} has shape {arrays[name].shape}, not {expected}")
            theta = torch.from_numpy(arrays[name].copy()).to(like.device, like.dtype)
            rounds = rounds_from_arrays(arrays, _rounds_prefix(group))
            references[group] = replace(with_checksum(theta), rounds=rounds)
    return references


def _rounds_prefix(group: Group) -> str:
    return f"{RELAY_PREFIX}{group}."


def _by_group(packets: Iterable[DeviceId], fleet: Fleet) -> dict[Group, list[DeviceId]]:
    groups: dict[Group, list[DeviceId]] = {}
    for device in packets:
        groups.setdefault(fleet.groups[device], []).append(device)
    return groups
