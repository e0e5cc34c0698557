"""Vectors and their norms.

Sums of squares have the same bits on every machine and device. Levels and skips follow from them,
so they are the same, too. The sums use float64 and a fixed order: the square of coordinate i is
added to lane i mod 65536, smaller i first. Then the halves of the lanes are added,
`lanes[:h] + lanes[h:]`, until one lane is left. Lanes without coordinates are zero. The square of a
float32 number is exact in float64; the square of a float64 number is rounded before it is added.
"""

import hashlib
import math
from dataclasses import dataclass

import torch

from aquila.core.passes import cpu, passes_for
from aquila.native import accumulate

Vector = torch.Tensor
"""A one-dimensional float32 or float64 tensor."""

_BLOCK = 2**20
"""Coordinates that are subtracted at a time."""


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
        """Add weight times this vector to a float64 vector, with the same bits as a dense one."""
        if weight == 1:
            accumulate.add_sparse(total.numpy(), self.positions.numpy(), self.values.numpy())
            return
        total[self.positions] = total[self.positions].add_(self.values, alpha=weight)


def squared_norm(v: Vector | SparseVector) -> float:
    """Return the squared 2-norm, accumulated in float64 so that large models lose no precision."""
    if not isinstance(v, SparseVector):
        return passes_for(v).measure(v, None)[1]
    return accumulate.squared_norm(v.positions.numpy(), v.values.numpy())


def max_norm(v: Vector) -> float:
    """Return max |v_i|, R in the papers; 0 for an empty vector, NaN if a coordinate is NaN."""
    passes = passes_for(v)
    return cpu.max_abs(v) if passes is cpu else passes.measure(v, None)[0]


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
    for first in range(0, vector.numel(), _BLOCK):
        part = slice(first, first + _BLOCK)
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
