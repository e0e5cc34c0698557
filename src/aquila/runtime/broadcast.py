"""How the model gets to the devices: whole, or as a coded difference to the one they hold.

With differences the server keeps one reference a group of the fleet: the model that all its devices
in step hold. Opening a round it codes u = theta - reference once and moves the reference by what
the code stands for; everybody computes at the new reference. What the code leaves out is part of
the next u by itself. Devices in step are sent the difference, all others the reference whole.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from aquila.core.coarse import coarsest
from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import theta_of
from aquila.core.packet import Dense, Packet
from aquila.core.state import Arrays
from aquila.core.vector import Vector
from aquila.core.wire import pack
from aquila.runtime.held import Held, named

Group = int
References = Mapping[Group, Held]
"""The model that the devices in step hold, by group of the fleet."""

ARRAY = "reference."
"""How the names of saved references begin."""


def whole(packets: Mapping[DeviceId, Packet]) -> dict[DeviceId, bytes]:
    """Return the frame of the model for each order; a model is packed once."""
    frames: dict[int, bytes] = {}
    for packet in packets.values():
        if id(packet.vector) not in frames:
            frames[id(packet.vector)] = pack(Packet(packet.round, packet.vector))
    return {device: frames[id(packet.vector)] for device, packet in packets.items()}


@dataclass(frozen=True)
class Differences:
    """Models as differences, each coded as coarsely as a relative `error` of it allows."""

    error: float

    def __post_init__(self) -> None:
        if not 0 < self.error < 1:
            raise ValueError(f"downlink must be at least 0 and below 1, not {self.error}")

    def frames(
        self,
        packets: Mapping[DeviceId, Packet],
        fleet: Fleet,
        references: References,
        in_step: Callable[[DeviceId], bool],
    ) -> tuple[dict[DeviceId, bytes], References]:
        """Return the frame of the model for each order, and the references they lead to."""
        frames: dict[DeviceId, bytes] = {}
        after: dict[Group, Held] = {}
        for group, devices in _by_group(packets, fleet).items():
            following, order = list(filter(in_step, devices)), packets[devices[0]]
            base = references.get(group) if following else None
            after[group], difference = self._moved(base, order)
            if difference is not None:
                frames |= dict.fromkeys(following, difference)
            others = [device for device in devices if device not in frames]
            if others:
                model = Packet(order.round, Dense(after[group].theta), answers=after[group].name)
                frames |= dict.fromkeys(others, pack(model))
        return frames, after

    def _moved(self, base: Held | None, order: Packet) -> tuple[Held, bytes | None]:
        """Return the new reference, and the frame that leads to it if that is worth it."""
        theta = theta_of(order)
        if base is not None:
            codes = coarsest(theta - base.theta, self.error)
            frame = pack(Packet(order.round, codes, answers=base.name))
            if len(frame) < theta.nbytes:
                return base.moved(codes), frame
        return named(theta), None


def references_to_arrays(references: References) -> Arrays:
    """Return references as they are saved; their names follow from them."""
    return {f"{ARRAY}{group}": held.theta.cpu().numpy() for group, held in references.items()}


def references_from_arrays(arrays: Arrays, fleet: Fleet, like: Vector) -> References:
    """Return saved references, or raise ValueError if they are not of this fleet."""
    references: dict[Group, Held] = {}
    for name, array in arrays.items():
        if name.startswith(ARRAY):
            group = int(name.removeprefix(ARRAY))
            if array.shape != (fleet.dimension_of_group(group),):
                raise ValueError(f"the saved {name} is {array.shape}")
            references[group] = named(torch.from_numpy(array.copy()).to(like.device, like.dtype))
    return references


def _by_group(packets: Iterable[DeviceId], fleet: Fleet) -> dict[Group, list[DeviceId]]:
    groups: dict[Group, list[DeviceId]] = {}
    for device in packets:
        groups.setdefault(fleet.groups[device], []).append(device)
    return groups
