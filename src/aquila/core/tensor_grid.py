"""Uploads with one uniform grid per tensor.

A frame holds grids for buckets of equal lengths, but tensors have different lengths. So the grids
travel as the first codes of the vector: for each tensor the bits of `low` and of `step`, cut into
codes of the width of the frame. A grid costs as many bytes as in the frame's own field.
"""

from dataclasses import dataclass

import torch

from aquila.core.envelope import require
from aquila.core.packet import Codes, Packet, SparseCodes, WireError, code_dtype
from aquila.core.quantize import largest_float_up_to
from aquila.core.tensors import (
    Shapes,
    digits_per_float,
    from_digits,
    per_coordinate,
    split_tensors,
    to_digits,
    total_size,
)
from aquila.core.vector import Vector

MAX_DIGITS = 64
"""Codes per float: at most one per bit of a float64."""


@dataclass(frozen=True, eq=False)
class TensorGrids:
    """A vector on one grid per tensor: coordinate i of tensor t is `low[t] + step[t] * codes[i]`.

    All codes have `bits` bits; a tensor may use fewer of them.
    """

    codes: torch.Tensor
    bits: int
    low: Vector
    step: Vector
    shapes: Shapes

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.codes.numel()

    def decode(self) -> Vector:
        """Return the vector both sides agree on: round the product, then round the sum."""
        scaled = self.codes.to(self.low.dtype).mul_(per_coordinate(self.step, self.shapes))
        return scaled.add_(per_coordinate(self.low, self.shapes))

    def to_codes(self) -> Codes:
        """Return the codes that a frame carries: the grids, then the coordinates."""
        return prepend_floats(torch.cat((self.low, self.step)), self.codes, self.bits)


@dataclass(frozen=True)
class TensorGridReader:
    """Reads `TensorGrids`."""

    def dimensions(self, shapes: Shapes) -> range:
        """Return the coordinates of the model plus the codes of two floats per tensor."""
        size, floats = total_size(shapes), 2 * len(shapes)
        return range(size + floats, size + floats * MAX_DIGITS + 1)

    def read(self, reply: Packet, shapes: Shapes) -> TensorGrids:
        """Return the grids and the codes of a reply; raise WireError if a grid is not finite."""
        sent = codes_of(reply)
        floats = 2 * len(shapes)
        size = total_size(shapes)
        header = sent.dimension - size
        require(
            header == floats * digits_per_float(sent.low, sent.bits),
            "the upload must hold two floats per tensor before its codes",
        )
        low, step = from_digits(sent.codes[:header], sent.bits, sent.low).chunk(2)
        top = low + step * (2.0**sent.bits - 1)
        valid = torch.isfinite(low) & torch.isfinite(top) & (step >= 0)
        require(bool(valid.all()), "a grid of a tensor is not finite or has a negative step")
        return TensorGrids(sent.codes[header:], sent.bits, low, step, shapes)


def midrise_tensors(v: Vector, bits: int, shapes: Shapes) -> TensorGrids | None:
    """Quantize each tensor like `quantize.midrise`; None if no tensor has a grid.

    A tensor whose coordinates are all zero, or too small for a step, becomes zero.
    """
    max_abs = torch.stack([_max_abs(part) for part in split_tensors(v, shapes)])
    step = (2 * max_abs.double() / (2**bits - 1)).to(v.dtype)
    if not bool(step.any()):
        return None
    low = torch.where(step > 0, -max_abs, 0)
    widths = per_coordinate(step, shapes)
    psi = ((v - per_coordinate(low, shapes)) / widths + 0.5).floor_()
    psi.clamp_(0, largest_float_up_to(2**bits - 1, v.dtype)).masked_fill_(widths == 0, 0)
    return TensorGrids(psi.to(code_dtype(bits)), bits, low, step, shapes)


def prepend_floats(floats: Vector, codes: torch.Tensor, bits: int) -> Codes:
    """Return codes that begin with the digits of floats, on the grid 0, 1, 2, and so on."""
    digits = to_digits(floats, bits).to(codes.dtype)
    both = torch.cat((digits, codes))
    return Codes(both, bits, floats.new_zeros(1), floats.new_ones(1), both.numel())


def codes_of(reply: Packet) -> Codes:
    """Return the codes of a reply; raise WireError if it has none."""
    if isinstance(reply.vector, SparseCodes):
        return reply.vector.to_codes()
    if not isinstance(reply.vector, Codes):
        raise WireError("the upload must hold codes")
    return reply.vector


def _max_abs(part: Vector) -> Vector:
    return part.abs().max() if part.numel() else part.new_zeros(())
