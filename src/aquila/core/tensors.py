"""The tensors of a model inside its flat vector, for methods that treat each tensor separately.

Device and server each know the shapes: the device from its oracle, the server from its fleet. An
upload of such a method carries a checksum of the shapes, so that a difference is an error.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch

from aquila.core.packet import Packet, Upload, WireError
from aquila.core.vector import Vector
from aquila.native.checksum import crc32

Shapes = tuple[torch.Size, ...]
"""The shapes of the tensors of a model, in the order of its flat vector."""

CHECKSUM = "tensors"
"""The scalar with the checksum of the shapes."""

PASS_FLEET = "pass RunOptions(fleet=problem.fleet)"


class UploadReader(Protocol):
    """Optional for a method: reads uploads whose meaning depends on the tensors of the model."""

    def dimensions(self, shapes: Shapes) -> range:
        """Return the numbers of coordinates that an upload may have."""
        ...

    def read(self, reply: Packet, shapes: Shapes) -> Upload:
        """Return the upload of a reply that has one; raise WireError if it is invalid."""
        ...


def one_tensor(dimension: int) -> Shapes:
    """Return the shapes of a model that is one vector."""
    return (torch.Size([dimension]),)


def total_size(shapes: Sequence[torch.Size]) -> int:
    """Return the number of coordinates of all tensors."""
    return sum(shape.numel() for shape in shapes)


def shapes_of(oracle: object, vector: Vector) -> Shapes:
    """Return the shapes that an oracle states, or one tensor if it states none."""
    shapes: Sequence[torch.Size] | None = getattr(oracle, "shapes", None)
    if shapes is None:
        return one_tensor(vector.numel())
    if total_size(shapes) != vector.numel():
        raise ValueError(
            f"the tensors of the oracle have {total_size(shapes)} coordinates, but the model has "
            f"{vector.numel()}"
        )
    return tuple(shapes)


def split_tensors(vector: Vector, shapes: Shapes) -> tuple[Vector, ...]:
    """Return the part of a flat vector that belongs to each tensor, as flat views."""
    return torch.split(vector, [shape.numel() for shape in shapes])


def per_coordinate(values: Vector, shapes: Shapes) -> Vector:
    """Return a flat vector in which each coordinate has the value of its tensor."""
    sizes = torch.tensor([shape.numel() for shape in shapes], device=values.device)
    return values.repeat_interleave(sizes, output_size=total_size(shapes))


def checksum_scalars(shapes: Shapes) -> dict[str, float]:
    """Return the scalars that an upload must carry."""
    return {CHECKSUM: float(_checksum(shapes))}


def check_tensors(reply: Packet, shapes: Shapes) -> None:
    """Raise WireError if an upload is for other tensors than these."""
    if reply.scalar(CHECKSUM) != _checksum(shapes):
        raise WireError(
            f"the upload is for other tensors than those of the server's fleet; {PASS_FLEET}"
        )


def to_digits(values: Vector, bits: int) -> torch.Tensor:
    """Return the bit patterns of floats as codes of `bits` bits, lowest bits first."""
    words = values.view(torch.int64 if values.element_size() == 8 else torch.int32).to(torch.int64)
    return (words[:, None] >> _shifts(values, bits)).bitwise_and_(2**bits - 1).reshape(-1)


def from_digits(digits: torch.Tensor, bits: int, like: Vector) -> Vector:
    """Return the floats of the type of `like` whose digits these are."""
    shifts = _shifts(like, bits)
    words = (digits.to(torch.int64).reshape(-1, len(shifts)) << shifts).sum(1)
    integers = words if like.element_size() == 8 else words.to(torch.int32)
    return integers.view(like.dtype)


def digits_per_float(like: Vector, bits: int) -> int:
    """Return the number of codes that one float takes."""
    return math.ceil(8 * like.element_size() / bits)


def _shifts(like: Vector, bits: int) -> torch.Tensor:
    return torch.arange(0, 8 * like.element_size(), bits, device=like.device)


def _checksum(shapes: Shapes) -> int:
    return crc32(repr([tuple(shape) for shape in shapes]).encode())
