"""What the passes that give codes are given, and what they give."""

from dataclasses import dataclass
from typing import NamedTuple

import torch


@dataclass(frozen=True)
class Grid:
    """Points `step * psi - largest` for psi from 0 to `last`, as numbers of the vector's type."""

    largest: float
    step: float
    last: float
    code: torch.dtype


@dataclass(frozen=True)
class SparseGrid:
    """Points `step * n` for whole n, chosen as n = sign(v) floor(|v| / step + lift).

    A size of exactly `threshold` gives 1: rounding must not lose it.
    """

    step: float
    lift: float
    threshold: float


class Quantized(NamedTuple):
    """Codes psi of v, the memory moved by dq = step * psi - largest, and two squared norms."""

    codes: torch.Tensor
    moved: torch.Tensor
    sent: float
    error: float
