"""Arguments and results of the passes that compute codes."""

from dataclasses import dataclass
from typing import NamedTuple

import torch


@dataclass(frozen=True)
class Grid:
    """Points `step * psi - max_abs` for psi from 0 to `max_code`, in the vector's float type."""

    max_abs: float
    step: float
    max_code: float
    code_dtype: torch.dtype


@dataclass(frozen=True)
class SparseGrid:
    """Points `step * n`, with n = sign(v) floor(|v| / step + rounding_offset).

    A magnitude of exactly `threshold` gives |n| = 1, whatever the division rounds to.
    """

    step: float
    rounding_offset: float
    threshold: float


class Quantized(NamedTuple):
    """Codes psi of v, memory + dq with dq = step * psi - max_abs, and ||dq||² and ||v - dq||²."""

    codes: torch.Tensor
    new_memory: torch.Tensor
    sent_squared: float
    error_squared: float
