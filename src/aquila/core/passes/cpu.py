"""The passes in C, for contiguous vectors on the CPU."""

from typing import Any

import torch
from numpy.typing import NDArray

from aquila.core.passes.grid import Grid, Quantized, SparseGrid
from aquila.native import passes, sparse


def measure(gradient: torch.Tensor, memory: torch.Tensor | None) -> tuple[float, float]:
    """Return max |v| and ||v||² of v = gradient - memory."""
    return passes.measure(_array(gradient), None if memory is None else _array(memory))


def quantize(gradient: torch.Tensor, memory: torch.Tensor, grid: Grid) -> Quantized:
    """Return the codes, the new memory, ||dq||² and ||v - dq||²."""
    new_memory, codes = torch.empty_like(memory), torch.empty_like(memory, dtype=grid.code_dtype)
    sent, error = passes.quantize(
        _array(gradient), _array(memory), _array(new_memory), _array(codes),
        grid.max_abs, grid.step, grid.max_code,
    )  # fmt: skip
    return Quantized(codes, new_memory, sent, error)


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
    passes.dither(_array(numbers), seed)
    return numbers


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    return (tensor.detach() if tensor.requires_grad else tensor).numpy()
