"""The trained parameters of a module as one flat vector."""

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from aquila.core.tensors import Shapes, split_tensors
from aquila.core.vector import Vector
from aquila.core.wire import checksum_of_vector
from aquila.native.checksum import crc32

ALLOWED_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class FlatParameters:
    """Reads and writes the parameters that require gradients.

    A tied parameter counts once. Frozen parameters are left alone. The flat vector is float32, or
    float64 if a parameter is. Narrower parameters hold its rounded values.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.tensors = trained_parameters(module)
        _check(self.tensors)
        self.shapes: Shapes = tuple(tensor.shape for tensor in self.tensors)
        wide = any(tensor.dtype == torch.float64 for tensor in self.tensors)
        self.dtype = torch.float64 if wide else torch.float32

    @torch.no_grad()
    def read(self) -> Vector:
        """Return the parameters as one vector."""
        return flatten(self.tensors, self.dtype)

    @torch.no_grad()
    def write(self, vector: Vector) -> None:
        """Set the parameters."""
        for tensor, part in zip(self.tensors, split_tensors(vector, self.shapes), strict=True):
            tensor.copy_(part.view(tensor.shape))

    def rounded(self, vector: Vector) -> Vector:
        """Return what `read` returns after `write`, without writing."""
        if all(tensor.dtype == self.dtype for tensor in self.tensors):
            return vector
        parts = zip(self.tensors, split_tensors(vector, self.shapes), strict=True)
        return torch.cat([part.to(tensor.dtype).to(self.dtype) for tensor, part in parts])

    def checksum(self) -> int:
        """Return a checksum of all parameters, frozen ones included."""
        return checksum_of(self._module.parameters())

    def check_unchanged(self) -> None:
        """Raise ValueError if other parameters require gradients than at the start."""
        now = trained_parameters(self._module)
        if [id(tensor) for tensor in now] != [id(tensor) for tensor in self.tensors]:
            raise ValueError(
                "other parameters require gradients than at the start; make a new Outer after "
                "freezing or replacing parameters"
            )


def trained_parameters(module: nn.Module) -> list[torch.Tensor]:
    """Return the parameters that require gradients, each once."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(module).__name__}")
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def checksum_of(tensors: Iterable[torch.Tensor]) -> int:
    """Return a checksum of the values of tensors."""
    checksum = 0
    for tensor in tensors:
        own = checksum_of_vector(tensor.detach().double().reshape(-1))
        checksum = crc32(own.to_bytes(4, "little"), checksum)
    return checksum


def flatten(tensors: Sequence[torch.Tensor], dtype: torch.dtype) -> Vector:
    """Return tensors as one new vector."""
    return torch.cat([tensor.detach().to(dtype).reshape(-1) for tensor in tensors])


def _check(tensors: Sequence[torch.Tensor]) -> None:
    if not tensors:
        raise ValueError("the module has no parameters to train")
    devices = sorted({str(tensor.device) for tensor in tensors})
    if len(devices) > 1:
        raise ValueError(
            f"the trained parameters are on {' and '.join(devices)}; they must be on one device"
        )
    if devices == ["meta"]:
        raise ValueError("the trained parameters are on the meta device; load the model first")
    for tensor in tensors:
        if type(tensor).__name__ == "DTensor":
            raise ValueError("the parameters are sharded; every rank must hold the whole model")
        if tensor.dtype not in ALLOWED_TYPES:
            allowed = ", ".join(str(dtype) for dtype in ALLOWED_TYPES)
            raise ValueError(f"a trained parameter is {tensor.dtype}; allowed: {allowed}")
