"""Reads the replies of devices, with the coordinates and tensors that each device holds."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch

from aquila.core.envelope import MIN_BYTES, Kind, kind_of, require
from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Shard, decode_upload, read_upload
from aquila.core.packet import DimensionError, Packet, WireError
from aquila.core.random import Key
from aquila.core.tensors import FLEET_HINT, Shapes, UploadReader, one_tensor, total_size
from aquila.core.vector import Vector
from aquila.core.wire import unpack
from aquila.runtime.norm_limit import NormLimit


def read_reply(
    frame: bytes, shapes: Shapes, reader: UploadReader | None, unpack: Callable[..., Packet]
) -> Packet:
    """Return a reply whose upload decodes to a vector of a model with these tensors.

    Raises WireError if the reply is invalid. `reader` is the one of the method, if it has one.
    """
    expected = total_size(shapes) if reader is None else reader.dimensions(shapes)
    is_relay = len(frame) >= MIN_BYTES and kind_of(frame) == Kind.RELAYED
    require(not is_relay, "a reply must not relay other replies")
    return read_upload(reader, unpack(frame, dimension=expected), shapes)


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
        unpack = partial(unpack, device=self.torch_device)
        try:
            return read_reply(frame, self.fleet.shapes_of(device), self.reader, unpack)
        except DimensionError as error:
            if self.reader is None:
                raise
            raise WireError(
                f"device {device} and the server have different tensors: {error}; {FLEET_HINT}"
            ) from None

    def limited(self, device: DeviceId, reply: Packet) -> Packet:
        """Return a reply within the limit, or raise WireError."""
        return reply if self.limit is None else self.limit.apply(device, reply)

    def read_limited(self, device: DeviceId, frame: bytes, unpack: Callable[..., Packet]) -> Packet:
        """Return the reply of a device within the limit, or raise WireError."""
        return self.limited(device, self.read(device, frame, unpack))


@dataclass(frozen=True)
class RelayReader:
    """Reads the uploads of other devices that the server passes on to a device.

    Args:
        reader: The reader of the method, None if its uploads are vectors of the model.
        shard: The data of the device, whose oracle states the tensors of the model.
        dimension: Number of coordinates of the model.
        torch_device: Where vectors are stored.
    """

    reader: UploadReader | None
    shard: Shard
    dimension: int
    torch_device: torch.device

    def __call__(self, frame: bytes) -> Vector:
        """Return the upload in the frame of a reply, as a vector of the model."""
        # the frame around this one was checked, and with it this one
        read = partial(unpack, device=self.torch_device, trusted=True)
        return decode_upload(read_reply(frame, self._shapes, self.reader, read))

    @cached_property
    def _shapes(self) -> Shapes:
        shapes = one_tensor(self.dimension)
        if self.reader is None:
            return shapes
        # any oracle will do, because all have the same tensors
        return tuple(getattr(self.shard.oracle(Key((0,))), "shapes", shapes))
