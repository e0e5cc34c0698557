"""Cache of decoded orders: each frame is read once, although many devices get the same bytes."""

import threading
from collections.abc import Sequence

import torch

from aquila.core.packet import Packet
from aquila.core.wire import unpack
from aquila.runtime.messages import Order
from aquila.runtime.reference import (
    UNNAMED,
    ReadUpload,
    ReferenceModel,
    base_of,
    resolve_model,
)
from aquila.runtime.traffic import Cost, cost_of


class OrderReader:
    """Reads the orders of one round for all devices in this process."""

    def __init__(self, torch_device: torch.device) -> None:
        self._torch_device = torch_device
        self._frames: dict[int, tuple[bytes, Packet, Cost]] = {}
        self._models: dict[tuple[int, int | None], ReferenceModel | None] = {}
        self._lock = threading.Lock()

    def read(self, frame: bytes, dimension: int) -> Packet:
        """Return the packet in a frame. The frame was packed in this process for `dimension`."""
        return self._entry(frame)[1]

    def cost(self, order: Order) -> Cost:
        """Return the cost of both frames of an order."""
        return self._entry(order.model)[2] + self._entry(order.control)[2]

    def resolve_model(
        self, model: Packet, references: Sequence[ReferenceModel], read_upload: ReadUpload
    ) -> ReferenceModel | None:
        """Return the model that a frame represents. Devices with the same model share it."""
        base = base_of(model, references)
        key = id(model), None if base is None else base.checksum
        if key in self._models:
            return self._models[key]
        with self._lock:
            if key not in self._models:
                self._models[key] = self._shared(resolve_model(model, references, read_upload))
            return self._models[key]

    def clear(self) -> None:
        """Drop the orders of the round."""
        self._frames.clear()
        self._models.clear()

    def _shared(self, model: ReferenceModel | None) -> ReferenceModel | None:
        """Return an equal model that another frame gave, or this one if there is none."""
        if model is None or model.checksum == UNNAMED:
            return model
        name = model.checksum, len(model.theta)
        for other in self._models.values():
            if other is not None and name == (other.checksum, len(other.theta)):
                return other
        return model

    def _entry(self, frame: bytes) -> tuple[bytes, Packet, Cost]:
        entry = self._frames.get(id(frame))
        if entry is None:  # the entry holds the frame, so its id stays unique
            packet = unpack(frame, device=self._torch_device, trusted=True)
            entry = self._frames[id(frame)] = frame, packet, cost_of(frame)
        return entry
