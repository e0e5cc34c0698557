"""Lossy half of an upload: vector -> codes. What the codes cost in bytes is the wire's business."""

import math
from ctypes import c_float
from dataclasses import replace
from functools import cache
from typing import Literal

import torch

from aquila.core.packet import MAX_BITS, Codes, Dense, code_dtype
from aquila.core.passes import passes_for, plain
from aquila.core.passes.grid import Grid, SparseGrid
from aquila.core.random import Key
from aquila.core.vector import Vector, max_norm, squared_norm

Norm = Literal["max", "l2"]

DEAD_ZONE = 0.6
"""Steps of the sparse quantizer below which a coordinate is sent as zero; nearest would be 0.5."""

SPARSE_LEVELS = 2**15 - 1
"""Magnitudes above zero that the sparse quantizer can send."""


def midrise(v: Vector, bits: int) -> Codes | None:
    """Deterministic range quantizer of LAQ and AQUILA (AQUILA, Definition 2 and Lemma 4).

    psi = floor((v + R) / (2 tau R) + 1/2), dq = 2 tau R psi - R, tau = 1 / (2**bits - 1); every
    coordinate is off by at most tau R, or by the rounding of R where that is coarser (in float32
    from about 22 bits on). The paper calls it mid-tread, but its grid has no zero.
    The zero vector has no grid and gives None.
    """
    grid = range_grid(max_norm(v), bits, v.dtype)
    return None if grid is None else make_codes(grid, plain.codes_on(grid, v), bits, like=v)


def range_grid(R: float, bits: int, dtype: torch.dtype) -> Grid | None:
    """Return the grid of 2**bits points from -R to R, or None if there is none."""
    top = 2**bits - 1
    step = 2 * R / top
    if dtype == torch.float32:
        step = c_float(step).value
    if step == 0:  # R = 0, or a subnormal range that the grid cannot divide any further
        return None
    return Grid(R, step, _largest_float_up_to(top, dtype), code_dtype(bits))


def make_codes(grid: Grid, psi: torch.Tensor, bits: int, like: Vector) -> Codes:
    """Return codes as they are sent: with their grid in the vector's type."""
    low, step = like.new_full((1,), -grid.max_abs), like.new_full((1,), grid.step)
    return Codes(psi, bits, low, step, psi.numel())


def midrise_or_dense(v: Vector, bits: int) -> Codes | Dense | None:
    """Range quantizer that sends the vector itself once that costs no more: from 32 bits on."""
    if bits < MAX_BITS:
        return midrise(v, bits)
    return Dense(v) if v.any() else None


def stochastic_round(
    v: Vector, levels: int, key: Key, norm: Norm = "max", bucket: int = 0
) -> Codes | None:
    """Unbiased stochastic quantizer of QSGD (Alistarh et al. 2017, section 3.1).

    |v_i| / norm is rounded to one of the two nearest multiples of 1 / levels, up with the
    probability that makes it right on average. `bucket` coordinates share one norm (0: all).
    """
    bucket = min(bucket, v.numel()) or v.numel()
    rows = _bucket_rows(v, bucket)
    order = torch.inf if norm == "max" else 2
    step = torch.linalg.vector_norm(rows, order, dim=1, dtype=torch.float64).to(v.dtype) / levels
    if not step.any():
        return None
    ratio = rows.abs() / step.clamp_min(torch.finfo(v.dtype).tiny)[:, None]
    magnitude = (ratio + _bucket_rows(key.uniform(v), bucket)).floor_()
    magnitude.clamp_max_(_largest_float_up_to(levels, v.dtype))
    signed = (magnitude * rows.sign()).reshape(-1)[: v.numel()]
    return _centered_codes(signed, levels, step, bucket)


def stochastic_sparse(v: Vector, density: float, dither: Vector) -> Codes | None:
    """Unbiased quantizer with a wide step: every coordinate draws a lot, about a share of them win.

    The step is the rms of v over the share, and psi = sign(v) floor(|v| / step + lot), lots being
    uniform in [0, 1): what is below the step is sent as one whole step with probability |v| / step,
    and else as zero. On average dq is v, at most density * d coordinates are not zero, and
    ||dq - v||² <= step ||v||_1 <= ||v||² / density, for every v.
    None if nobody wins, as in the zero vector, if the step is too large for the type, and for NaN.
    """
    width = math.sqrt(squared_norm(v) / max(1, v.numel())) / density
    if not torch.finfo(v.dtype).tiny <= width <= torch.finfo(v.dtype).max:
        return None
    step = v.new_full((1,), width)
    magnitude = (v.abs() / step).add_(dither).floor_()
    top = int(magnitude.max())
    if not top:
        return None
    levels = levels_for_bits(bits_for_levels(top))
    return _centered_codes(magnitude.mul_(v.sign()), levels, step, v.numel())


def shared_dither(v: Vector, density: float, key: Key) -> Codes | None:
    """Lottery whose lots the reader draws too, from a seed that goes with the codes.

    Winners are where lots are high: to tell which they are takes half to a quarter of the bytes.
    """
    seed = key.uint32()
    codes = stochastic_sparse(v, density, passes_for(v).dither(seed, v))
    return None if codes is None else replace(codes, dither_seed=seed)


def sparse(v: Vector, density: float) -> Codes | None:
    """Zero-level quantizer that spends itself on a share of the coordinates, those that stand out.

    With t the k-th largest |v_i|, k = density * d and at least 1, the step is t / 0.6, and
    psi = sign(v) floor(|v| / step + 0.4): what is below t is sent as zero. A coordinate that is
    sent loses 5/9 of its energy or more, so ||v - dq||² <= (1 - 5/9 share) ||v||² for every v (up
    to 1e9 coordinates, and a share of 0.7; beyond, SPARSE_LEVELS may bind).
    Equal magnitudes are sent together. The zero vector has no grid and gives None, and so does NaN.
    """
    passes, largest = passes_for(v), max_norm(v)
    count = max(1, round(density * v.numel()))
    kth = passes.kth_largest(v, count) if v.numel() else 0.0
    threshold = max(DEAD_ZONE * largest / SPARSE_LEVELS, kth)  # in this order NaN stays NaN
    step = v.new_full((1,), threshold / DEAD_ZONE)
    if not bool(step > 0):
        return None
    grid = SparseGrid(float(step), 1 - DEAD_ZONE, threshold)
    top = int(plain.magnitudes_on(grid, torch.tensor(largest, dtype=v.dtype)))
    bits = bits_for_levels(top)
    codes = passes.sparse_codes(v, grid, top, code_dtype(bits))
    return Codes(codes, bits, -(step * top), step, v.numel())


def levels_for_bits(bits: int) -> int:
    """Magnitudes above zero that a sign and the rest of `bits` can tell apart (6 bits: 31)."""
    return int(2 ** (bits - 1)) - 1


def bits_for_levels(levels: int) -> int:
    """Bits that hold the 2 * levels + 1 values of a dithered coordinate."""
    return math.ceil(math.log2(2 * levels + 1))


def _centered_codes(signed: torch.Tensor, levels: int, step: Vector, bucket: int) -> Codes:
    """Return codes of whole steps from -levels to levels; the middle one is exactly zero."""
    bits = bits_for_levels(levels)
    exact = signed.dtype if bits <= 24 else torch.float64  # float32 counts up to 2**24 only
    codes = (signed.to(exact) + levels).to(code_dtype(bits))
    # -(step * levels) and not -norm, so that the middle code decodes to exactly zero
    return Codes(codes, bits, -(step * levels), step, bucket)


def _bucket_rows(v: Vector, bucket: int) -> torch.Tensor:
    padding = -v.numel() % bucket
    return torch.nn.functional.pad(v, (0, padding)).reshape(-1, bucket)


@cache
def _largest_float_up_to(top: int, dtype: torch.dtype) -> float:
    """Largest number of this type that is at most `top`: float32 rounds 2**32 - 1 up to 2**32."""
    exact = torch.tensor(float(top), dtype=dtype)
    return float(exact if float(exact) <= top else torch.nextafter(exact, torch.zeros_like(exact)))
