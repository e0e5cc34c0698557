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


@dataclass(frozen=True)
class DitherGrid:
    """Points `step * n`, with n = sign(v) floor(|v| / step + dither) and the dither of a seed.

    The code of n is `centre` + n. Codes hold at most `centre` steps.
    """

    step: float
    seed: int
    centre: int
    code_dtype: torch.dtype


class Dithered(NamedTuple):
    """Codes on a dither grid, memory + rate dq if there is a memory, and ||v - dq||².

    `top` is the largest number of steps. If it exceeds the grid's, the rest is not complete.
    """

    codes: torch.Tensor
    new_memory: torch.Tensor | None
    top: int
    error_squared: float


class Accumulated(NamedTuple):
    """The vector v = error + (gradient - memory), max |v|, ||v||² and the k-th largest |v_i|."""

    v: torch.Tensor
    max_abs: float
    squared: float
    kth_largest: float


class FedBack(NamedTuple):
    """Codes on a sparse grid, v - dq, memory + rate dq, and ||v - dq||²."""

    codes: torch.Tensor
    residual: torch.Tensor
    new_memory: torch.Tensor
    error_squared: float
