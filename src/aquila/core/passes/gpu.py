"""The passes as fused Triton kernels, for contiguous vectors on a CUDA GPU."""

from typing import Any

import torch

from aquila.core.passes import dither_kernels as dithering
from aquila.core.passes import feedback_kernels as feedback
from aquila.core.passes import kernels, plain
from aquila.core.passes.grid import (
    Accumulated,
    Dithered,
    DitherGrid,
    FedBack,
    Grid,
    Quantized,
    SparseGrid,
)
from aquila.core.passes.plain import dither as dither
from aquila.core.passes.plain import kth_largest as kth_largest
from aquila.core.passes.plain import sparse_codes as sparse_codes

LANES: int = kernels.LANES.value
PROGRAMS: int = kernels.PROGRAMS.value
KERNEL_OPTIONS: dict[str, Any] = {"num_warps": 8, "enable_fp_fusion": False}
REDUCTION_OPTIONS: dict[str, Any] = {"num_warps": 32}

MIN_RATIO = 16
"""With more than one coordinate in this many, the k-th largest one is searched for by torch."""


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


def dithered_codes(
    gradient: torch.Tensor, memory: torch.Tensor | None, rate: float, grid: DitherGrid
) -> Dithered:
    """Return the codes of gradient - memory on the grid, and the new memory if there is one."""
    codes, new_memory, result = launch_dithered_codes(gradient, memory, rate, grid)
    top, error = result.tolist()
    return Dithered(codes, new_memory, int(top), error)


def launch_dithered_codes(
    gradient: torch.Tensor, memory: torch.Tensor | None, rate: float, grid: DitherGrid
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Return codes, new memory and two numbers without waiting: most steps and ||v - dq||²."""
    codes = torch.empty_like(gradient, dtype=grid.code_dtype)
    new_memory = None if memory is None else torch.empty_like(memory)
    squares, result = _float64(LANES, gradient), _float64(2, gradient)
    tops, count = gradient.new_empty(PROGRAMS), gradient.numel()
    block_bits = plain.dither_block_bits(grid.seed, count)
    seed = grid.seed - (grid.seed >> 31 << 32)  # as a signed integer of 32 bits
    with torch.cuda.device_of(gradient):  # type: ignore[no-untyped-call]
        dithering.dithered_codes[(PROGRAMS,)](
            gradient, memory, new_memory, codes, _block_keys(seed, block_bits, gradient),
            squares, tops, grid.step, rate, seed, block_bits, grid.centre, count, _rows(count),
            **KERNEL_OPTIONS,
        )  # fmt: skip
        kernels.finish_measure[(1,)](squares, tops, result, **REDUCTION_OPTIONS)
    return codes, new_memory, result


def _block_keys(seed: int, block_bits: int, like: torch.Tensor) -> torch.Tensor:
    """Return the keys of the blocks of a dither, of all rows that a program visits."""
    step = LANES * kernels.ROWS.value
    visited = -(-like.numel() // step) * step
    blocks, programs = -(-visited >> block_bits), dithering.BLOCKS_PER_PROGRAM.value
    keys = like.new_empty(blocks * dithering.KEYS_PER_BLOCK.value, dtype=torch.int64)
    dithering.block_keys[(-(-blocks // programs),)](keys, seed, block_bits, blocks)
    return keys


def accumulate(
    error: torch.Tensor, gradient: torch.Tensor, memory: torch.Tensor, k: int
) -> Accumulated:
    """Return v = error + (gradient - memory) and its measures; v must not be empty."""
    v, result = launch_accumulate(error, gradient, memory, k)
    largest, squared, kth = result.tolist()
    return Accumulated(v, largest, squared, kth_largest(v, k) if kth < 0 else kth)


def launch_accumulate(
    error: torch.Tensor, gradient: torch.Tensor, memory: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return v and max |v|, ||v||² and the k-th largest |v_i| without waiting.

    The last is -1 if torch has to search for it.
    """
    v, count = torch.empty_like(error), error.numel()
    squares, result = _float64(LANES, error), _float64(3, error).fill_(-1)
    magnitudes, selection = error.new_empty(PROGRAMS), _selection_for(error, k)
    search = (None, None, None) if selection is None else selection.collecting
    room = 0 if selection is None else selection.room
    with torch.cuda.device_of(gradient):  # type: ignore[no-untyped-call]
        if selection is not None:
            selection.set_bound(error, gradient, memory)
        feedback.accumulate[(PROGRAMS,)](
            error, gradient, memory, v, squares, magnitudes, *search, count, _rows(count), room,
            **KERNEL_OPTIONS,
        )  # fmt: skip
        kernels.finish_measure[(1,)](squares, magnitudes, result, **REDUCTION_OPTIONS)
        if selection is not None:
            selection.finish(magnitudes, result[2:])
    return v, result


class _Selection:
    """The search for the k-th largest magnitude among those that lanes collect."""

    def __init__(self, like: torch.Tensor, k: int) -> None:
        rows = _rows(like.numel())
        self.k, self.room = k, min(rows, 64 + rows // 8)
        bound, found = like.new_empty(1, dtype=torch.int32), _int32(LANES, like)
        self.collecting = bound, _int32(self.room * LANES, like), found
        bins = feedback.LEVELS.value * feedback.BINS.value
        self._bins = like.new_zeros(bins, dtype=torch.int32)
        self._state = _int32(feedback.LEVELS.value * feedback.STATE.value, like)

    def set_bound(self, error: torch.Tensor, gradient: torch.Tensor, memory: torch.Tensor) -> None:
        """Compute the bound from a sample, as `native/select.h` does."""
        sample, count = feedback.SAMPLE.value, error.numel()
        expected = self.k * sample // count
        rank = min(sample, expected + expected // 2 + 32)
        feedback.sample_bound[(1,)](
            error, gradient, memory, self.collecting[0], count, rank, **REDUCTION_OPTIONS
        )

    def finish(self, magnitudes: torch.Tensor, result: torch.Tensor) -> None:
        """Store the k-th largest magnitude, or -1 if the lanes have not collected it."""
        bound, collected, found = self.collecting
        for level in range(feedback.LEVELS.value):
            feedback.count_digit[(PROGRAMS,)](
                collected, found, magnitudes, bound, self._bins, self._state, self.k, self.room,
                level, num_warps=8,
            )  # fmt: skip
        feedback.finish_selection[(1,)](
            found, self._bins, self._state, result, self.k, self.room, **REDUCTION_OPTIONS
        )


def _selection_for(like: torch.Tensor, k: int) -> _Selection | None:
    """Return a selection for float32 vectors of which it collects few coordinates, else None."""
    count = like.numel()
    is_sparse = count >= 4 * feedback.SAMPLE.value and k <= count // MIN_RATIO
    return _Selection(like, k) if is_sparse and like.dtype == torch.float32 else None


def feed_back(
    v: torch.Tensor,
    memory: torch.Tensor,
    rate: float,
    grid: SparseGrid,
    top: int,
    code_dtype: torch.dtype,
) -> FedBack:
    """Return the codes of v, the residual in the place of v, and the new memory."""
    codes, new_memory, result = launch_feed_back(v, memory, rate, grid, top, code_dtype)
    return FedBack(codes, v, new_memory, float(result))


def launch_feed_back(
    v: torch.Tensor,
    memory: torch.Tensor,
    rate: float,
    grid: SparseGrid,
    top: int,
    code_dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return codes, new memory and ||v - dq||² without waiting; v becomes the residual."""
    codes, new_memory = torch.empty_like(v, dtype=code_dtype), torch.empty_like(memory)
    squares, result = _float64(LANES, v), _float64(1, v)
    points, count = (grid.step, grid.rounding_offset, grid.threshold), v.numel()
    with torch.cuda.device_of(v):  # type: ignore[no-untyped-call]
        feedback.feed_back[(PROGRAMS,)](
            v, memory, new_memory, codes, squares, *points, rate, top, count, _rows(count),
            **KERNEL_OPTIONS,
        )  # fmt: skip
        kernels.finish_quantize[(1,)](squares, result, **REDUCTION_OPTIONS)
    return codes, new_memory, result


def _float64(count: int, like: torch.Tensor) -> torch.Tensor:
    return like.new_empty(count, dtype=torch.float64)


def _int32(count: int, like: torch.Tensor) -> torch.Tensor:
    return like.new_empty(count, dtype=torch.int32)


def _rows(count: int) -> int:
    return -(-count // LANES)
