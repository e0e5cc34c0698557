"""The passes in C, for contiguous vectors on the CPU."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aquila.core.passes.grid import (
    Accumulated,
    Dithered,
    DitherGrid,
    FedBack,
    Grid,
    Quantized,
    SparseGrid,
)
from aquila.native import dither as dithering
from aquila.native import error_feedback, passes, sparse

_INTEGERS = {torch.uint8: np.uint8, torch.int16: np.int16, torch.int32: np.int32}


def measure(gradient: torch.Tensor, memory: torch.Tensor | None) -> tuple[float, float]:
    """Return max |v| and ||v||² of v = gradient - memory."""
    return passes.measure(_array(gradient), _optional_array(memory))


def max_abs(v: torch.Tensor) -> float:
    """Return max |v_i|, which takes a third of the time of `measure`."""
    return passes.max_abs(_array(v))


def quantize(gradient: torch.Tensor, memory: torch.Tensor, grid: Grid) -> Quantized:
    """Return the codes, the new memory, ||dq||² and ||v - dq||²."""
    before = _array(memory)
    # NumPy allocates faster than torch, and keeps the interpreter lock
    new_memory, codes = np.empty_like(before), np.empty(before.shape, _INTEGERS[grid.code_dtype])
    sent, error = passes.quantize(
        _array(gradient), before, new_memory, codes, grid.max_abs, grid.step, grid.max_code
    )
    return Quantized(torch.from_numpy(codes), torch.from_numpy(new_memory), sent, error)


def kth_largest(v: torch.Tensor, k: int) -> float:
    """Return the k-th largest |v_i|."""
    return sparse.kth_largest(_array(v), k)


def sparse_codes(
    v: torch.Tensor, grid: SparseGrid, top: int, code_dtype: torch.dtype
) -> torch.Tensor:
    """Return top + n per coordinate."""
    codes = torch.empty_like(v, dtype=code_dtype)
    sparse.codes(_array(v), _array(codes), grid.step, grid.rounding_offset, grid.threshold, top)
    return codes


def dither(seed: int, like: torch.Tensor) -> torch.Tensor:
    """Return the dither of a seed, in [0, 1)."""
    numbers = torch.empty_like(like)
    dithering.fill(_array(numbers), seed)
    return numbers


def dithered_codes(
    gradient: torch.Tensor, memory: torch.Tensor | None, rate: float, grid: DitherGrid
) -> Dithered:
    """Return the codes of gradient - memory on the grid, and the new memory if there is one."""
    codes = torch.empty_like(gradient, dtype=grid.code_dtype)
    new_memory = None if memory is None else torch.empty_like(memory)
    top, error = dithering.codes(
        _array(gradient), _optional_array(memory), _optional_array(new_memory), _array(codes),
        grid.step, grid.seed, grid.centre, rate,
    )  # fmt: skip
    return Dithered(codes, new_memory, top, error)


def accumulate(
    error: torch.Tensor, gradient: torch.Tensor, memory: torch.Tensor, k: int
) -> Accumulated:
    """Return v = error + (gradient - memory) and its measures; v must not be empty."""
    v = torch.empty_like(error)
    measures = error_feedback.accumulate(
        _array(error), _array(gradient), _array(memory), _array(v), k
    )
    return Accumulated(v, *measures)


def feed_back(
    v: torch.Tensor,
    memory: torch.Tensor,
    rate: float,
    grid: SparseGrid,
    top: int,
    code_dtype: torch.dtype,
) -> FedBack:
    """Return the codes of v, the residual in the place of v, and the new memory."""
    codes, new_memory = torch.empty_like(v, dtype=code_dtype), torch.empty_like(memory)
    error = error_feedback.feed_back(
        _array(memory), _array(v), _array(new_memory), _array(codes),
        grid.step, grid.rounding_offset, grid.threshold, top, rate,
    )  # fmt: skip
    return FedBack(codes, v, new_memory, error)


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    return (tensor.detach() if tensor.requires_grad else tensor).numpy()


def _optional_array(tensor: torch.Tensor | None) -> NDArray[Any] | None:
    return None if tensor is None else _array(tensor)
