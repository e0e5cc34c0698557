"""The passes in torch operations, each rounded separately: the same bits on any device."""

from typing import Any

import torch

from aquila.core.passes.grid import Grid, Quantized, SparseGrid

_MASK_32_BITS = 2**32 - 1
_ROUNDS, _KEYS_PER_BLOCK = 6, 8

MIN_BLOCK_BITS = 6
"""log2 of the coordinates in the smallest block of a dither."""

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
    """Return the dither of docs/wire-format-dithered.md: one number in [0, 1) per coordinate."""
    block_bits = dither_block_bits(seed, like.numel())
    places = torch.arange(1 << block_bits, device=like.device)
    blocks = torch.arange(-(-like.numel() >> block_bits), device=like.device)[:, None]
    slots = (blocks << block_bits) + _ranks(seed, block_bits, blocks, places)
    words = (~slots << 32 - block_bits) & _MASK_32_BITS
    words += (_MASK_32_BITS - _words(seed, slots)) >> block_bits
    bits = 24 if like.dtype == torch.float32 else 32
    return (words.flatten()[: like.numel()] >> (32 - bits)).to(like.dtype).mul_(2.0**-bits)


def dither_block_bits(seed: int, count: int) -> int:
    """Return log2 of the coordinates per block of the dither of a vector."""
    return max(MIN_BLOCK_BITS, min(MIN_BLOCK_BITS + seed % 16, (count - 1).bit_length()))


def _ranks(seed: int, block_bits: int, blocks: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the ranks of the places in blocks, one row per block."""
    mask, shift, ranks = (1 << block_bits) - 1, (block_bits + 1) // 2, places
    for number in reversed(range(_ROUNDS)):
        keys = _words(seed, _MASK_32_BITS - (_KEYS_PER_BLOCK * blocks + number))
        factors = keys >> 11 | 1
        inverses = factors
        for _ in range(4):  # from 3 correct bits to 48
            inverses = inverses * (2 - factors * inverses) & _MASK_32_BITS
        ranks = ranks ^ ranks >> shift
        ranks = (ranks * (inverses & mask) - keys) & mask
    return ranks


def _words(seed: int, indices: torch.Tensor) -> torch.Tensor:
    """Return the words of 32 bits of these indices."""
    return _mix((_mix(indices ^ _mix(indices.new_tensor(seed))) + seed) & _MASK_32_BITS)


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
