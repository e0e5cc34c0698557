"""Reads the replies of devices, with the coordinates and tensors that each device holds."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import read_upload
from aquila.core.packet import DimensionError, Packet, Upload, WireError
from aquila.core.tensors import FLEET_HINT, UploadReader
from aquila.runtime.frame_spool import ReadFrame
from aquila.runtime.stored_upload import stored_upload


@dataclass(frozen=True)
class ReplyReader:
    """Turns frames into replies whose uploads decode to vectors of the device's model.

    Args:
        fleet: The coordinates and tensors that each device holds.
        reader: The reader of the method, None if its uploads are vectors of the model.
        torch_device: Where vectors are stored.
    """

    fleet: Fleet
    reader: UploadReader | None
    torch_device: torch.device

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

    def stored(
        self, device: DeviceId, reply: Packet, read_frame: ReadFrame, unpack: Callable[..., Packet]
    ) -> Packet:
        """Return a reply that takes little memory, because its frame is read again when needed."""
        if reply.vector is None:
            return reply

        def load() -> Upload:
            again = self.read(device, read_frame(), unpack).vector
            if again is None:
                raise WireError(f"the frame of device {device} has changed on disk")
            return again

        return replace(reply, vector=stored_upload(reply.vector, load))
