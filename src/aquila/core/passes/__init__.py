"""The two passes over gradient and memory that a quantized innovation costs.

The first measures v = g - q, the second gives the codes of v on a grid and the new memory; neither
stores v. There are three makes of them that give the same bits: `cpu` in C, `gpu` in Triton, and
`plain` in torch operations, which says what the others must do.
"""

from functools import cache
from typing import Protocol

import torch

from aquila.core.passes import cpu, plain
from aquila.core.passes.grid import Grid, Quantized


class Passes(Protocol):
    """One make of the two passes, over vectors of one length, type and device."""

    def measure(self, gradient: torch.Tensor, memory: torch.Tensor | None) -> tuple[float, float]:
        """Return max |v| and ||v||² of v = gradient - memory; no memory counts as zero."""

    def quantize(self, gradient: torch.Tensor, memory: torch.Tensor, grid: Grid) -> Quantized:
        """Return the codes of v on the grid, the memory moved by dq, ||dq||² and ||v - dq||²."""


def passes_for(*vectors: torch.Tensor) -> Passes:
    """Return the fastest make there is for these vectors."""
    if not all(v.is_contiguous() and v.dtype in (torch.float32, torch.float64) for v in vectors):
        return plain
    if all(v.is_cpu for v in vectors):
        return cpu
    return _fused() if all(v.is_cuda for v in vectors) else plain


@cache
def _fused() -> Passes:
    try:
        from aquila.core.passes import gpu
    except ImportError:  # torch may come without Triton, or with one that will not do
        return plain
    return gpu
