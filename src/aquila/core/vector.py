"""Vectors and their norms.

Sums of squares have the same bits on every machine and device. Levels and skips follow from them,
so they are the same, too. The sums use float64 and a fixed order: the square of coordinate i is
added to lane i mod 65536, smaller i first. Then the halves of the lanes are added,
`lanes[:h] + lanes[h:]`, until one lane is left. Lanes without coordinates are zero. The square of a
float32 number is exact in float64; the square of a float64 number is rounded before it is added.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from aquila.core.passes import passes_for, plain

Vector = torch.Tensor
"""A one-dimensional float32 or float64 tensor."""

BLOCK = 2**15
"""Coordinates that are decoded at a time. They stay in the cache, and torch uses one thread."""


_WIDE_BLOCK = 2**20
"""Coordinates of a block where a pass may use several threads."""


@dataclass(frozen=True, eq=False)
class SparseVector:
    """A vector on the CPU that is zero except at a few positions, in increasing order."""

    positions: torch.Tensor
    values: Vector

    def at(self, indices: torch.Tensor | None) -> "SparseVector":
        """Return the vector whose coordinate `indices[i]` is coordinate i; None changes nothing."""
        return self if indices is None else SparseVector(indices[self.positions], self.values)

    def to_dense(self, dimension: int) -> Vector:
        """Return the vector with all its coordinates."""
        return self.values.new_zeros(dimension).index_copy_(0, self.positions, self.values)

    def add_to(self, total: Vector, weight: float) -> None:
        """Add weight times this vector, with the same bits as a dense vector."""
        total[self.positions] = total[self.positions].add_(self.values, alpha=weight)


@dataclass(frozen=True, eq=False)
class GridVector:
    """A vector on the CPU that is still coded: coordinate i is `low + step * codes[i]`.

    `low` and `step` hold one entry per `bucket` consecutive coordinates. The whole vector is never
    in memory: it is decoded in blocks into one buffer.
    """

    codes: torch.Tensor
    low: Vector
    step: Vector
    bucket: int

    def blocks(self) -> Iterator[tuple[slice, Vector]]:
        """Yield where consecutive coordinates are, and their values in float64, in one buffer."""
        size, count = self._block_size, self.codes.numel()
        buffer = torch.empty(min(size, count), dtype=self.low.dtype)
        wide = torch.empty_like(buffer, dtype=torch.float64)
        for first in range(0, count, size):
            part = slice(first, min(first + size, count))
            length = part.stop - first
            values = self._decode(buffer[:length].copy_(self.codes[part]), first)
            yield part, wide[:length].copy_(values)

    def to_dense(self) -> Vector:
        """Return the vector with all its coordinates."""
        return self._decode(self.codes.to(self.low.dtype), 0)

    def add_to(self, total: Vector, weight: float) -> None:
        """Add weight times this vector, with the same bits as a dense vector."""
        for part, values in self.blocks():
            total[part].add_(values, alpha=weight)

    @property
    def _block_size(self) -> int:
        """Whole buckets, unless there is one grid only."""
        return BLOCK if self.low.numel() == 1 else self.bucket * max(1, BLOCK // self.bucket)

    def _decode(self, codes: Vector, first: int) -> Vector:
        """Replace codes by values: round the product, then round the sum."""
        if self.low.numel() == 1:
            return codes.mul_(self.step).add_(self.low)
        grid, whole = first // self.bucket, codes.numel() // self.bucket
        rows, rest = codes[: whole * self.bucket], codes[whole * self.bucket :]
        if whole:
            own = slice(grid, grid + whole)
            rows.view(whole, -1).mul_(self.step[own, None]).add_(self.low[own, None])
        if rest.numel():
            rest.mul_(self.step[grid + whole]).add_(self.low[grid + whole])
        return codes


Summand = Vector | SparseVector | GridVector
"""What averages take: a vector, its nonzero coordinates, or its codes."""


def squared_norm(v: Summand) -> float:
    """Return the squared 2-norm, accumulated in float64 so that large models lose no precision."""
    if isinstance(v, torch.Tensor):
        return passes_for(v).measure(v, None)[1]
    lanes = torch.zeros(plain.LANES, dtype=torch.float64)
    if isinstance(v, SparseVector):
        lanes.index_add_(0, v.positions % plain.LANES, v.values.double().square())
    else:
        for part, values in v.blocks():
            _add_squares(lanes, part.start, values.mul_(values))
    return plain.sum_of_lanes(lanes)


def _add_squares(lanes: Vector, first: int, squares: Vector) -> None:
    """Add the squares of consecutive coordinates, `first` and those after it, to their lanes."""
    done, count = 0, squares.numel()
    while done < count:
        lane = (first + done) % plain.LANES
        size = min(count - done, plain.LANES - lane)
        lanes[lane : lane + size] += squares[done : done + size]
        done += size


def max_norm(v: Vector) -> float:
    """Return max |v_i|, R in the papers; 0 for an empty vector, NaN if a coordinate is NaN."""
    return passes_for(v).measure(v, None)[0]


def error_ratio(v: Vector, approximation: Vector) -> float:
    """Return ||v - approximation|| / ||v||; 0 for the zero vector."""
    _, error = passes_for(v, approximation).measure(v, approximation)
    return relative_norm(error, squared_norm(v))


def relative_norm(squared: float, reference_squared: float) -> float:
    """Return the ratio of two norms, given their squares; 0 if the second is 0."""
    return math.sqrt(squared / reference_squared) if reference_squared else 0.0


def subtract(vector: Vector, change: Vector) -> Vector:
    """Return `vector - change` in the dtype of the vector.

    On the CPU it is computed in blocks, because a wider difference of a large model takes memory.
    """
    if vector.dtype == change.dtype or not vector.is_cpu:
        return (vector - change).to(vector.dtype)
    result = torch.empty_like(vector)
    for first in range(0, vector.numel(), _WIDE_BLOCK):
        part = slice(first, first + _WIDE_BLOCK)
        result[part] = vector[part] - change[part]
    return result


def check_theta0(theta: object) -> None:
    """Raise TypeError or ValueError unless this is a valid initial model."""
    if not isinstance(theta, torch.Tensor):
        raise TypeError(f"theta0 must be a torch tensor, not {type(theta).__name__}")
    if theta.ndim != 1 or theta.dtype not in (torch.float32, torch.float64) or not len(theta):
        raise ValueError(
            "theta0 must be a flat float32 or float64 vector that is not empty, "
            f"not {theta.dtype} of shape {tuple(theta.shape)}"
        )
    if not torch.isfinite(theta).all():
        raise ValueError("theta0 contains NaN or infinite numbers")


def digest(vector: torch.Tensor) -> str:
    """Return a short text that identifies a vector: size, type and hash of its content."""
    content = vector.detach().cpu().numpy().tobytes()
    return f"{vector.numel()} x {vector.dtype} {hashlib.sha256(content).hexdigest()[:16]}"
