"""The floating-point buffers of a module as one flat vector on the host."""

from collections.abc import Sequence

import torch
from torch import nn

from aquila.core.tensors import split_tensors
from aquila.core.vector import Vector
from aquila.distributed.parameters import flatten


class FlatBuffers:
    """Reads and writes the floating-point buffers, which may be on several devices.

    The flat vector is float32, or float64 if a buffer is. Narrower buffers hold its rounded values.
    """

    def __init__(self, module: nn.Module) -> None:
        self.tensors: Sequence[torch.Tensor] = [
            buffer for buffer in module.buffers() if buffer.is_floating_point()
        ]
        wide = any(tensor.dtype == torch.float64 for tensor in self.tensors)
        self.dtype = torch.float64 if wide else torch.float32
        self.length = sum(tensor.numel() for tensor in self.tensors)

    def read(self) -> Vector:
        """Return the buffers as one vector."""
        if any(tensor.is_meta for tensor in self.tensors):
            raise ValueError("a buffer is on the meta device; load the model first")
        return flatten([tensor.cpu() for tensor in self.tensors], self.dtype)

    @torch.no_grad()
    def write(self, vector: Vector) -> None:
        """Set the buffers."""
        shapes = tuple(tensor.shape for tensor in self.tensors)
        for tensor, part in zip(self.tensors, split_tensors(vector, shapes), strict=True):
            tensor.copy_(part.view(tensor.shape))
