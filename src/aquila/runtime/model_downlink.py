"""Sends the model to the devices, whole or as a coded difference to the model that they hold.

With differences the server keeps one reference model per group of the fleet. Every device in step
holds the reference of its group. When a round opens, the server codes u = theta - reference once
and adds the decoded u to the reference. All devices compute at the new reference. The next u
contains the coding error of this one. Devices in step get the difference, all others get the
whole reference.

If few devices are in step, and in the first round, all devices get a *coded model* instead: theta
itself, coded with at most the error of a difference. It needs no reference.
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
from aquila.runtime.reference import NO_BASE, ReferenceModel, with_checksum

Group = int
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
    """Codes models in few bytes, with at most this `error` relative to the change of the model."""

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
        after: dict[Group, ReferenceModel] = {}
        for group, devices in _by_group(packets, fleet).items():
            order, base = packets[devices[0]], references.get(group)
            broadcast = self._broadcast(order, base, devices, in_step)
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
        in_step: Callable[[DeviceId], bool],
    ) -> Broadcast:
        """Return the broadcast to a group that takes the fewest bytes."""
        followers = [] if base is None else list(filter(in_step, devices))
        out_of_step = len(devices) - len(followers)
        model_bytes = theta_of(order).nbytes
        smallest = None
        if out_of_step >= MIN_SHARE_OUT_OF_STEP * len(devices):
            smallest = self._coded_model(order, base, devices)
        worth_trying = smallest is None or out_of_step * model_bytes < smallest.nbytes
        if base is not None and followers and worth_trying:
            difference = self._difference(order, base, devices, followers)
            if smallest is None or difference.nbytes < smallest.nbytes:
                smallest = difference
        if smallest is not None and smallest.nbytes < len(devices) * model_bytes:
            return smallest
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

    def _coded_model(
        self, order: Packet, base: ReferenceModel | None, devices: list[DeviceId]
    ) -> Broadcast | None:
        """Send the model itself, coded; None if its error would exceed that of a difference.

        Only the first model of a run has no difference to compare with.
        """
        theta, error, largest = theta_of(order), MAX_MODEL_ERROR, math.inf
        if base is not None:
            largest = self.error * math.sqrt(squared_norm(theta - base.theta))
            error = min(error, largest / max(math.sqrt(squared_norm(theta)), TINY))
        if (base is None and order.round > 0) or error == 0:
            return None
        codes = quantize_within(theta, error)
        decoded = codes.decode()
        if squared_norm(theta - decoded) > ROUNDING * largest**2:  # too many levels are needed
            return None
        frame = pack(Packet(order.round, codes, refers_to=NO_BASE))
        return Broadcast(with_checksum(decoded), dict.fromkeys(devices, frame))


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
