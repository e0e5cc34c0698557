"""The passes over vectors that quantizers consist of.

An innovation takes two passes. The first measures v = g - q; the second computes the codes of v on
a grid and the new memory. Neither stores v. Sparse codes need the k-th largest coordinate and a
pass on the grid that follows from it. Dithered codes need a dither.

Two fused passes compute such an upload and the next state of a device. They need float32 or float64
vectors that are contiguous. Elsewhere `core/updates.py` takes the same steps one after another.

Three implementations give the same bits: `cpu` in C, `gpu` in Triton, and `plain` in torch
operations. `plain` is the reference for the other two.
"""

from functools import cache
from typing import Protocol, cast

import torch

from aquila.core.passes import cpu, plain
from aquila.core.passes.grid import (
    Accumulated,
    Dithered,
    DitherGrid,
    FedBack,
    Grid,
    Quantized,
    SparseGrid,
)

_FLOATS = torch.float32, torch.float64


class Passes(Protocol):
    """One implementation of the passes. All vectors of a call have one length, type and device."""

    def measure(self, gradient: torch.Tensor, memory: torch.Tensor | None) -> tuple[float, float]:
        """Return max |v| and ||v||² of v = gradient - memory; a memory of None is zero."""

    def quantize(self, gradient: torch.Tensor, memory: torch.Tensor, grid: Grid) -> Quantized:
        """Return the codes of v on the grid, memory + dq, ||dq||² and ||v - dq||²."""

    def kth_largest(self, v: torch.Tensor, k: int) -> float:
        """Return the k-th largest |v_i| of a vector without NaN; ties count separately."""

    def sparse_codes(
        self, v: torch.Tensor, grid: SparseGrid, top: int, code_dtype: torch.dtype
    ) -> torch.Tensor:
        """Return top + n per coordinate as `code_dtype`; `top` is the n of max |v|."""

    def dither(self, seed: int, like: torch.Tensor) -> torch.Tensor:
        """Return the dither of a seed: one number in [0, 1) per coordinate."""


class FusedPasses(Passes, Protocol):
    """An implementation that has the fused passes of sparse uploads, too."""

    def dithered_codes(
        self, gradient: torch.Tensor, memory: torch.Tensor | None, rate: float, grid: DitherGrid
    ) -> Dithered:
        """Return the codes of gradient - memory on the grid, and the new memory if there is one."""

    def accumulate(
        self, error: torch.Tensor, gradient: torch.Tensor, memory: torch.Tensor, k: int
    ) -> Accumulated:
        """Return v = error + (gradient - memory) and its measures; v must not be empty."""

    def feed_back(
        self,
        v: torch.Tensor,
        memory: torch.Tensor,
        rate: float,
        grid: SparseGrid,
        top: int,
        code_dtype: torch.dtype,
    ) -> FedBack:
        """Return the codes of v, the residual in the place of v, and the new memory."""


def fused_passes(passes: Passes) -> FusedPasses | None:
    """Return an implementation with its fused passes, None if it has none."""
    return None if passes is plain else cast(FusedPasses, passes)


def passes_for(*vectors: torch.Tensor) -> Passes:
    """Return the fastest implementation for these vectors."""
    on_cpu = True
    for v in vectors:
        if v.dtype not in _FLOATS or not v.is_contiguous():
            return plain
        on_cpu = on_cpu and v.is_cpu
    if on_cpu:
        return cpu
    return _gpu_passes() if all(v.is_cuda for v in vectors) else plain


@cache
def _gpu_passes() -> Passes:
    try:
        from aquila.core.passes import gpu
    except ImportError:  # no Triton, or one that is too old
        return plain
    return gpu
