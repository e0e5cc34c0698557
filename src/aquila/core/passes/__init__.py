"""The passes over vectors that quantizing costs.

An innovation takes two: the first measures v = g - q, the second gives the codes of v on a grid and
the new memory; neither stores v. Sparse codes take a search for the k-th largest coordinate and a
pass on the grid that it sets, and drawn codes take lots. There are three makes of them that give
the same bits: `cpu` in C, `gpu` in Triton, and `plain` in torch operations, which says what the
others must do.
"""

from functools import cache
from typing import Protocol

import torch

from aquila.core.passes import cpu, plain
from aquila.core.passes.grid import Grid, Quantized, SparseGrid

_FLOATS = torch.float32, torch.float64


class Passes(Protocol):
    """One make of the passes, over vectors of one length, type and device."""

    def measure(self, gradient: torch.Tensor, memory: torch.Tensor | None) -> tuple[float, float]:
        """Return max |v| and ||v||² of v = gradient - memory; no memory counts as zero."""

    def quantize(self, gradient: torch.Tensor, memory: torch.Tensor, grid: Grid) -> Quantized:
        """Return the codes of v on the grid, the memory moved by dq, ||dq||² and ||v - dq||²."""

    def kth_largest(self, v: torch.Tensor, k: int) -> float:
        """Return the k-th largest |v_i| of a vector without NaN; equal ones count each."""

    def sparse_codes(
        self, v: torch.Tensor, grid: SparseGrid, top: int, code_dtype: torch.dtype
    ) -> torch.Tensor:
        """Return top + n for every coordinate, in type `code_dtype`; top is the n of max |v|."""

    def dither(self, seed: int, like: torch.Tensor) -> torch.Tensor:
        """Return numbers uniform in [0, 1) that follow from the seed, one for every coordinate."""


def passes_for(*vectors: torch.Tensor) -> Passes:
    """Return the fastest make there is for these vectors."""
    on_cpu = on_gpu = 0
    for v in vectors:
        if v.dtype not in _FLOATS or not v.is_contiguous():
            return plain
        on_cpu += v.is_cpu
        on_gpu += v.is_cuda
    if on_cpu == len(vectors):
        return cpu
    return _gpu_passes() if on_gpu == len(vectors) else plain


@cache
def _gpu_passes() -> Passes:
    try:
        from aquila.core.passes import gpu
    except ImportError:  # torch may come without Triton, or with one that will not do
        return plain
    return gpu
