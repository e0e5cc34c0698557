"""How the model gets to the devices: whole, or as a coded difference to the one they hold.

With differences the server keeps one reference a group of the fleet: the model that all its devices
in step hold. Opening a round it codes u = theta - reference once and moves the reference by what
the code stands for; everybody computes at the new reference. What the code leaves out is part of
the next u by itself. Devices in step are sent the difference, all others the reference whole.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import theta_of
from aquila.core.packet import Dense, Packet
from aquila.core.quantize_within import quantize_within
from aquila.core.state import Arrays
from aquila.core.vector import Vector
from aquila.core.wire import pack
from aquila.runtime.reference import ReferenceModel, with_checksum

Group = int
References = Mapping[Group, ReferenceModel]
"""The model that the devices in step hold, by group of the fleet."""

REFERENCE_PREFIX = "reference."
"""How the names of saved references begin."""


def pack_models(packets: Mapping[DeviceId, Packet]) -> dict[DeviceId, bytes]:
    """Return the frame of the model for each order; a model is packed once."""
    frames: dict[int, bytes] = {}
    for packet in packets.values():
        if id(packet.vector) not in frames:
            frames[id(packet.vector)] = pack(Packet(packet.round, packet.vector))
    return {device: frames[id(packet.vector)] for device, packet in packets.items()}


@dataclass(frozen=True)
class DownlinkCoder:
    """Models as differences, each coded as coarsely as a relative `error` of it allows."""

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
        """Return the frame of the model for each order, and the references they lead to."""
        frames: dict[DeviceId, bytes] = {}
        after: dict[Group, ReferenceModel] = {}
        for group, devices in _by_group(packets, fleet).items():
            followers, order = list(filter(in_step, devices)), packets[devices[0]]
            base = references.get(group) if followers else None
            after[group], difference = self._next_reference(base, order)
            if difference is not None:
                frames |= dict.fromkeys(followers, difference)
            others = [device for device in devices if device not in frames]
            if others:
                model = Packet(
                    order.round, Dense(after[group].theta), answers=after[group].checksum
                )
                frames |= dict.fromkeys(others, pack(model))
        return frames, after

    def _next_reference(
        self, base: ReferenceModel | None, order: Packet
    ) -> tuple[ReferenceModel, bytes | None]:
        """Return the new reference, and the frame that leads to it if that is worth it."""
        theta = theta_of(order)
        if base is not None:
            codes = quantize_within(theta - base.theta, self.error)
            frame = pack(Packet(order.round, codes, answers=base.checksum))
            if len(frame) < theta.nbytes:
                return base.with_difference(codes), frame
        return with_checksum(theta), None


def references_to_arrays(references: References) -> Arrays:
    """Return references as they are saved; their names follow from them."""
    return {
        f"{REFERENCE_PREFIX}{group}": reference.theta.cpu().numpy()
        for group, reference in references.items()
    }


def references_from_arrays(arrays: Arrays, fleet: Fleet, like: Vector) -> References:
    """Return saved references, or raise ValueError if they are not of this fleet."""
    references: dict[Group, ReferenceModel] = {}
    for name, array in arrays.items():
        if name.startswith(REFERENCE_PREFIX):
            group = int(name.removeprefix(REFERENCE_PREFIX))
            if array.shape != (fleet.dimension_of_group(group),):
                raise ValueError(f"the saved {name} is {array.shape}")
            references[group] = with_checksum(
                torch.from_numpy(array.copy()).to(like.device, like.dtype)
            )
    return references


def _by_group(packets: Iterable[DeviceId], fleet: Fleet) -> dict[Group, list[DeviceId]]:
    groups: dict[Group, list[DeviceId]] = {}
    for device in packets:
        groups.setdefault(fleet.groups[device], []).append(device)
    return groups
