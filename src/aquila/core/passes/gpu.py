"""The passes as fused Triton kernels, for contiguous vectors on a CUDA GPU."""

from typing import Any

import torch

from aquila.core.passes import kernels
from aquila.core.passes.grid import Grid, Quantized
from aquila.core.passes.plain import dither as dither
from aquila.core.passes.plain import kth_largest as kth_largest
from aquila.core.passes.plain import sparse_codes as sparse_codes

LANES: int = kernels.LANES.value
PROGRAMS: int = kernels.PROGRAMS.value
KERNEL_OPTIONS: dict[str, Any] = {"num_warps": 8, "enable_fp_fusion": False}
REDUCTION_OPTIONS: dict[str, Any] = {"num_warps": 32}


def measure(gradient: torch.Tensor, memory: torch.Tensor | None) -> tuple[float, float]:
    """Return max |v| and ||v||² of v = gradient - memory."""
    squares, result = _float64(LANES, gradient), _float64(2, gradient)
    magnitudes, count = gradient.new_empty(PROGRAMS), gradient.numel()
    with torch.cuda.device_of(gradient):  # type: ignore[no-untyped-call]
        kernels.measure[(PROGRAMS,)](
            gradient, memory, squares, magnitudes, count, _rows(count), **KERNEL_OPTIONS
        )
        kernels.finish_measure[(1,)](squares, magnitudes, result, **REDUCTION_OPTIONS)
    largest, squared = result.tolist()
    return largest, squared


def quantize(gradient: torch.Tensor, memory: torch.Tensor, grid: Grid) -> Quantized:
    """Return the codes, the new memory, ||dq||² and ||v - dq||²."""
    new_memory, codes = torch.empty_like(memory), torch.empty_like(memory, dtype=grid.code_dtype)
    squares, result = _float64(2 * LANES, gradient), _float64(2, gradient)
    points, count = (grid.max_abs, grid.step, grid.max_code), gradient.numel()
    with torch.cuda.device_of(gradient):  # type: ignore[no-untyped-call]
        kernels.quantize[(PROGRAMS,)](
            gradient,
            memory,
            new_memory,
            codes,
            squares,
            *points,
            count,
            _rows(count),
            **KERNEL_OPTIONS,
        )
        kernels.finish_quantize[(2,)](squares, result, **REDUCTION_OPTIONS)
    sent, error = result.tolist()
    return Quantized(codes, new_memory, sent, error)


def _float64(count: int, like: torch.Tensor) -> torch.Tensor:
    return like.new_empty(count, dtype=torch.float64)


def _rows(count: int) -> int:
    return -(-count // LANES)
