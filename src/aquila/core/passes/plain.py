"""The passes in torch operations, each rounded separately: the same bits on any device."""

from typing import Any

import torch

from aquila.core.passes.grid import Grid, Quantized, SparseGrid

_MASK_32_BITS = 2**32 - 1

LANES = 65536
"""Number of partial sums of a sum of squares; see `core/vector.py`."""


def measure(gradient: torch.Tensor, memory: torch.Tensor | None) -> tuple[float, float]:
    """Return max |v| and ||v||² of v = gradient - memory."""
    v = gradient if memory is None else gradient - memory
    return float(v.abs().max()) if v.numel() else 0.0, sum_of_squares(v)


def quantize(gradient: torch.Tensor, memory: torch.Tensor, grid: Grid) -> Quantized:
    """Return the codes, the new memory, ||dq||² and ||v - dq||²."""
    v = gradient - memory
    codes = codes_on(grid, v)
    dq = codes.to(v.dtype).mul_(grid.step).sub_(grid.max_abs)
    return Quantized(codes, memory + dq, sum_of_squares(dq), sum_of_squares(v - dq))


def codes_on(grid: Grid, v: torch.Tensor) -> torch.Tensor:
    """Return psi = floor((v + R) / step + 1/2), and 0 for NaN."""
    step = v.new_full((1,), grid.step)  # CUDA multiplies by the inverse of a plain number
    psi = ((v + grid.max_abs) / step + 0.5).floor_()
    return psi.nan_to_num_(0.0).clamp_(0, grid.max_code).to(grid.code_dtype)


def kth_largest(v: torch.Tensor, k: int) -> float:
    """Return the k-th largest |v_i|."""
    return float(v.abs().topk(k, sorted=False).values.min())


def sparse_codes(
    v: torch.Tensor, grid: SparseGrid, top: int, code_dtype: torch.dtype
) -> torch.Tensor:
    """Return top + n per coordinate."""
    return (magnitudes_on(grid, v.abs()) * v.sign() + top).to(code_dtype)


def magnitudes_on(grid: SparseGrid, sizes: torch.Tensor) -> torch.Tensor:
    """Return |n| = floor(size / step + rounding_offset), and 1 at the threshold."""
    step = sizes.new_full((1,), grid.step)  # as in codes_on
    whole = (sizes / step + grid.rounding_offset).floor_()
    return whole.masked_fill_(sizes == grid.threshold, 1)


def dither(seed: int, like: torch.Tensor) -> torch.Tensor:
    """Return the dither words of docs/wire-format-dithered.md as fractions in [0, 1)."""
    indices = torch.arange(like.numel(), device=like.device)
    words = _mix((_mix(indices ^ _mix(indices.new_tensor(seed))) + seed) & _MASK_32_BITS)
    bits = 24 if like.dtype == torch.float32 else 32
    return (words >> (32 - bits)).to(like.dtype).mul_(2.0**-bits)


def _mix(words: torch.Tensor) -> torch.Tensor:
    """Mix words of 32 bits, held in int64 because torch cannot multiply uint32."""
    words = ((words ^ words >> 16) * 0x21F0AAAD) & _MASK_32_BITS
    words = ((words ^ words >> 15) * 0xD35A2D97) & _MASK_32_BITS
    return words ^ words >> 15


def sum_of_squares(v: torch.Tensor) -> float:
    """Return the sum of v_i² in float64, in the order that `core/vector.py` defines."""
    lanes = torch.zeros(
        min(LANES, next_power_of_two(v.numel())), dtype=torch.float64, device=v.device
    )
    for first in range(0, v.numel(), LANES):
        row = v[first : first + LANES].to(torch.float64).square()
        lanes[: len(row)] += row
    return sum_of_lanes(lanes)


def sum_of_lanes(lanes: torch.Tensor) -> float:
    """Return the sum of the lanes, halves first; their number is a power of two."""
    # NumPy adds a few numbers faster than torch
    sums: Any = lanes.numpy() if lanes.is_cpu else lanes
    while len(sums) > 1:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    return float(sums[0])


def next_power_of_two(at_least: int) -> int:
    """Return the smallest power of two that is at least this number."""
    return 1 << max(at_least - 1, 0).bit_length()
