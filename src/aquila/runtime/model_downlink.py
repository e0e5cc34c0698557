"""Sends the model to the devices, whole or as a coded difference to the model that they hold.

With differences the server keeps one reference model per group of the fleet. Every device in step
holds the reference of its group. When a round opens, the server codes u = theta - reference once
and adds the decoded u to the reference. All devices compute at the new reference. The next u
contains the coding error of this one. Devices in step get the difference, all others get the
whole reference. In the first round, all devices get the model itself, coded with a small error.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Scalars, theta_of
from aquila.core.packet import Dense, Packet
from aquila.core.quantize_within import quantize_within
from aquila.core.state import Arrays
from aquila.core.vector import Vector
from aquila.core.wire import pack
from aquila.runtime.reference import UNNAMED, ReferenceModel, with_checksum

Group = int
References = Mapping[Group, ReferenceModel]
"""Reference model per group of the fleet."""

FIRST_ERROR = 2**-8
"""Relative error of the model of the first round, which takes about eight bits per coordinate."""

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


@dataclass(frozen=True)
class DownlinkCoder:
    """Codes models as differences, with the fewest bits that keep the relative `error`."""

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
            order = packets[devices[0]]
            if order.round == 0:
                receivers = devices
                after[group], frame = first_reference(order)
            else:
                receivers = list(filter(in_step, devices))
                base = references.get(group) if receivers else None
                after[group], frame = self._next_reference(base, order)
            if frame is not None:
                frames |= dict.fromkeys(receivers, frame)
            others = [device for device in devices if device not in frames]
            if others:
                model = Packet(
                    order.round, Dense(after[group].theta), refers_to=after[group].checksum
                )
                frames |= dict.fromkeys(others, pack(model))
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
            model = Packet(order.round, Dense(after[group].theta), refers_to=after[group].checksum)
            frames[device] = pack(model)
        return frames, after

    def _next_reference(
        self, base: ReferenceModel | None, order: Packet
    ) -> tuple[ReferenceModel, bytes | None]:
        """Return the new reference and the difference frame, None if that saves no bytes."""
        theta = theta_of(order)
        if base is not None:
            codes = quantize_within(theta - base.theta, self.error)
            frame = pack(Packet(order.round, codes, refers_to=base.checksum))
            if len(frame) < theta.nbytes:
                return base.with_difference(codes), frame
        return with_checksum(theta), None


def first_reference(order: Packet) -> tuple[ReferenceModel, bytes | None]:
    """Return the first reference and the frame of the coded model, None if that saves no bytes."""
    theta = theta_of(order)
    codes = quantize_within(theta, FIRST_ERROR)
    frame = pack(Packet(order.round, codes, refers_to=UNNAMED))
    if len(frame) < theta.nbytes:
        return with_checksum(codes.decode()), frame
    return with_checksum(theta), None


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
