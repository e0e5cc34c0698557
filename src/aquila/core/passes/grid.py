"""What the passes that give codes are given, and what they give."""

from dataclasses import dataclass
from typing import NamedTuple

import torch


@dataclass(frozen=True)
class Grid:
    """Points `step * psi - max_abs` for psi from 0 to `max_code`, in the vector's type."""

    max_abs: float
    step: float
    max_code: float
    code_dtype: torch.dtype


@dataclass(frozen=True)
class SparseGrid:
    """Points `step * n` for whole n, chosen as n = sign(v) floor(|v| / step + rounding_offset).

    A size of exactly `threshold` gives 1: rounding must not lose it.
    """

    step: float
    rounding_offset: float
    threshold: float


class Quantized(NamedTuple):
    """Codes psi of v, the memory moved by dq = step * psi - max_abs, and two squared norms."""

    codes: torch.Tensor
    new_memory: torch.Tensor
    sent_squared: float
    error_squared: float
