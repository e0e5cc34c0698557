"""Reads the replies of devices, with the coordinates and tensors that each device holds."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import read_upload
from aquila.core.packet import DimensionError, Packet, WireError
from aquila.core.tensors import FLEET_HINT, UploadReader
from aquila.runtime.norm_limit import NormLimit


@dataclass(frozen=True)
class ReplyReader:
    """Turns frames into replies whose uploads decode to vectors of the device's model.

    Args:
        fleet: The coordinates and tensors that each device holds.
        reader: The reader of the method, None if its uploads are vectors of the model.
        torch_device: Where vectors are stored.
        limit: Limit on the norm of uploads, None without one.
    """

    fleet: Fleet
    reader: UploadReader | None
    torch_device: torch.device
    limit: NormLimit | None = None

    def read(self, device: DeviceId, frame: bytes, unpack: Callable[..., Packet]) -> Packet:
        """Return the reply of a device; raise WireError if it is invalid."""
        if self.reader is None:
            dimension = self.fleet.dimension_of(device)
            return unpack(frame, dimension=dimension, device=self.torch_device)
        shapes = self.fleet.shapes_of(device)
        try:
            expected = self.reader.dimensions(shapes)
            reply = unpack(frame, dimension=expected, device=self.torch_device)
        except DimensionError as error:
            raise WireError(
                f"device {device} and the server have different tensors: {error}; {FLEET_HINT}"
            ) from None
        return read_upload(self.reader, reply, shapes)

    def limited(self, device: DeviceId, reply: Packet) -> Packet:
        """Return a reply within the limit, or raise WireError."""
        return reply if self.limit is None else self.limit.apply(device, reply)

    def read_limited(self, device: DeviceId, frame: bytes, unpack: Callable[..., Packet]) -> Packet:
        """Return the reply of a device within the limit, or raise WireError."""
        return self.limited(device, self.read(device, frame, unpack))
