"""Sends the model to the devices, whole or as a coded difference to the model that they hold.

With differences the server keeps one reference model per group of the fleet. Every device in step
holds the reference of its group. When a round opens, the server codes u = theta - reference once
and adds the decoded u to the reference. All devices compute at the new reference. The next u
contains the coding error of this one. Devices in step get the difference, all others get the
whole reference.

If few devices are in step, the server codes the model itself with an error that is no larger. All
devices then get the same frame, whatever they hold.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Scalars, theta_of
from aquila.core.packet import Dense, Packet
from aquila.core.quantize_within import quantize_within
from aquila.core.state import Arrays
from aquila.core.vector import Vector, squared_norm
from aquila.core.wire import pack
from aquila.runtime.reference import UNNAMED, ReferenceModel, with_checksum

Group = int
References = Mapping[Group, ReferenceModel]
"""Reference model per group of the fleet."""

MAX_MODEL_ERROR, MIN_MODEL_ERROR = 2**-8, 2**-20
"""Relative errors of coded whole models. At the largest they take about 8 bits per coordinate."""
MIN_OTHERS = 4
"""A coded whole model for all can only save bytes if one device in four or more has no reference:
it takes 8 bits per coordinate where a difference takes about one, and a whole model 32."""

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
    """Codes models with a relative `error` of their change, in the fewest bytes for all devices."""

    error: float

    def __post_init__(self) -> None:
        if not 0 < self.error < 1:
            raise ValueError(f"downlink_error must be at least 0 and below 1, not {self.error}")

    def encode(
        self,
        packets: Mapping[DeviceId, Packet],
        fleet: Fleet,
        references: References,
        in_step: Callable[[DeviceId], bool],
    ) -> tuple[dict[DeviceId, bytes], References]:
        """Return the model frame per device, and the references after the round.

        Args:
            packets: Order per device.
            fleet: The fleet; its groups share a reference.
            references: References before the round.
            in_step: Whether a device holds the reference of its group.
        """
        frames: dict[DeviceId, bytes] = {}
        after = dict(references)
        for group, devices in _by_group(packets, fleet).items():
            order, base = packets[devices[0]], references.get(group)
            chosen = self._broadcast(order, base, devices, in_step)
            frames |= chosen.frames
            after[group] = chosen.reference
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
        in_step: Callable[[DeviceId], bool],
    ) -> Broadcast:
        """Return the broadcast to a group that takes the fewest bytes."""
        followers = [] if base is None else list(filter(in_step, devices))
        ways = []
        if base is not None and followers:
            ways.append(self._difference(order, base, devices, followers))
        if MIN_OTHERS * (len(devices) - len(followers)) >= len(devices):
            ways.append(self._coded(order, base, devices))
        best = min(ways, key=lambda way: way.nbytes)
        if best.nbytes < theta_of(order).nbytes * len(devices):
            return best
        reference = with_checksum(theta_of(order))
        return Broadcast(reference, dict.fromkeys(devices, pack_whole(order.round, reference)))

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

    def _coded(
        self, order: Packet, base: ReferenceModel | None, devices: list[DeviceId]
    ) -> Broadcast:
        """Send the model itself, coded, with an error that a difference could have, too."""
        theta, error = theta_of(order), MAX_MODEL_ERROR
        norm = math.sqrt(squared_norm(theta))
        if base is not None and norm:
            change = math.sqrt(squared_norm(theta - base.theta))
            error = max(MIN_MODEL_ERROR, min(error, self.error * change / norm))
        codes = quantize_within(theta, error)
        frame = pack(Packet(order.round, codes, refers_to=UNNAMED))
        return Broadcast(with_checksum(codes.decode()), dict.fromkeys(devices, frame))


def pack_whole(round_number: int, reference: ReferenceModel) -> bytes:
    """Return the frame of a whole model with its name."""
    return pack(Packet(round_number, Dense(reference.theta), refers_to=reference.checksum))


def references_to_arrays(references: References) -> Arrays:
    """Return references as arrays. Their checksums are computed again when they are loaded."""
    return {
        f"{REFERENCE_PREFIX}{group}": reference.theta.cpu().numpy()
        for group, reference in references.items()
    }


def references_from_arrays(arrays: Arrays, fleet: Fleet, like: Vector) -> References:
    """Return saved references, or raise ValueError if they do not match the fleet."""
    references: dict[Group, ReferenceModel] = {}
    for name, array in arrays.items():
        if name.startswith(REFERENCE_PREFIX):
            group = int(name.removeprefix(REFERENCE_PREFIX))
            expected = (fleet.dimension_of_group(group),)
            if array.shape != expected:
                raise ValueError(f"the saved {name} has shape {array.shape}, not {expected}")
            references[group] = with_checksum(
                torch.from_numpy(array.copy()).to(like.device, like.dtype)
            )
    return references


def _by_group(packets: Iterable[DeviceId], fleet: Fleet) -> dict[Group, list[DeviceId]]:
    groups: dict[Group, list[DeviceId]] = {}
    for device in packets:
        groups.setdefault(fleet.groups[device], []).append(device)
    return groups
