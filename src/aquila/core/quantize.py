"""The lossy half of an upload: vector -> codes. `core/wire.py` turns the codes into bytes."""

import math
from ctypes import c_float
from dataclasses import replace
from functools import cache
from typing import Literal, NamedTuple

import torch

from aquila.core.packet import MAX_BITS, Codes, Dense, code_dtype
from aquila.core.passes import FusedPasses, fused_passes, passes_for, plain
from aquila.core.passes.grid import DitherGrid, Grid, SparseGrid
from aquila.core.passes.plain import MIN_BLOCK_BITS
from aquila.core.random import Key
from aquila.core.vector import Vector, max_norm, squared_norm

Norm = Literal["max", "l2"]

DEAD_ZONE = 0.6
"""The sparse quantizer sends a coordinate below this many steps as zero (0.5 would be nearest)."""

SPARSE_LEVELS = 2**15 - 1
"""Number of nonzero magnitudes of the sparse quantizer."""

BLOCK_SENDS = 4
"""Most coordinates of a block of the dither that are sent on average, unless the block is small."""

MAX_FUSED_STEPS = 2**22
"""Number of steps below which float32 represents all dithered codes exactly."""

MAX_FUSED_COORDINATES = 2**32
"""Number of coordinates below which 32 bits hold the position of each."""


def midrise(v: Vector, bits: int) -> Codes | None:
    """Quantize on a uniform grid from -R to R, as LAQ and AQUILA do (Definition 2 and Lemma 4).

    psi = floor((v + R) / (2 tau R) + 1/2), dq = 2 tau R psi - R, tau = 1 / (2**bits - 1). The error
    of a coordinate is at most tau R, or the rounding error of R if that is larger (in float32 from
    about 22 bits on). The paper calls the quantizer mid-tread, but its grid does not contain zero.
    Returns None for the zero vector, which has no grid.
    """
    grid = range_grid(max_norm(v), bits, v.dtype)
    return None if grid is None else make_codes(grid, plain.codes_on(grid, v), bits, like=v)


def range_grid(R: float, bits: int, dtype: torch.dtype) -> Grid | None:
    """Return the grid of 2**bits points from -R to R, or None if its step is zero."""
    top = 2**bits - 1
    step = 2 * R / top
    if dtype == torch.float32:
        step = c_float(step).value
    if step == 0:  # R = 0, or the step underflows
        return None
    return Grid(R, step, largest_float_up_to(top, dtype), code_dtype(bits))


def make_codes(grid: Grid, psi: torch.Tensor, bits: int, like: Vector) -> Codes:
    """Return the codes with their grid in the vector's float type."""
    low, step = like.new_full((1,), -grid.max_abs), like.new_full((1,), grid.step)
    return Codes(psi, bits, low, step, psi.numel())


def midtread(v: Vector, bits: int) -> Codes | None:
    """Quantize to the nearest multiple of `midrise`'s step, on a grid that contains zero.

    The codes reach 2**(bits - 1) - 1 steps in both directions, half a step less than R.
    """
    grid = range_grid(max_norm(v), bits, v.dtype)
    if grid is None:
        return None
    levels = levels_for_bits(bits)
    signed = (v / grid.step).round_().clamp_(-levels, levels)
    return _centered_codes(signed, levels, v.new_full((1,), grid.step), v.numel())


def midrise_or_dense(v: Vector, bits: int) -> Codes | Dense | None:
    """Quantize like `midrise`; from 32 bits on send the vector itself, because it costs no more."""
    if bits < MAX_BITS:
        return midrise(v, bits)
    return Dense(v) if v.any() else None


def stochastic_round(
    v: Vector, levels: int, key: Key, norm: Norm = "max", bucket: int = 0
) -> Codes | None:
    """Quantize without bias by stochastic rounding, as QSGD does (Alistarh et al. 2017, 3.1).

    Args:
        v: the vector.
        levels: number of nonzero magnitudes. |v_i| / norm is rounded to one of the two nearest
            multiples of 1 / levels, with the probabilities that make the mean exact.
        key: the key of the random numbers.
        norm: the norm that scales the grid.
        bucket: consecutive coordinates that share one norm; 0 for all.
    """
    bucket = min(bucket, v.numel()) or v.numel()
    rows = _bucket_rows(v, bucket)
    order = torch.inf if norm == "max" else 2
    step = torch.linalg.vector_norm(rows, order, dim=1, dtype=torch.float64).to(v.dtype) / levels
    if not step.any():
        return None
    ratio = rows.abs() / step.clamp_min(torch.finfo(v.dtype).tiny)[:, None]
    magnitude = (ratio + _bucket_rows(key.uniform(v), bucket)).floor_()
    magnitude.clamp_max_(largest_float_up_to(levels, v.dtype))
    signed = (magnitude * rows.sign()).reshape(-1)[: v.numel()]
    return _centered_codes(signed, levels, step, bucket)


def stochastic_sparse(v: Vector, density: float, dither: Vector) -> Codes | None:
    """Quantize without bias by stochastic rounding with a step so wide that most codes are zero.

    The step is rms(v) / density, and psi = sign(v) floor(|v| / step + dither) with a dither uniform
    in [0, 1). So a coordinate below the step becomes one step with probability |v_i| / step, and
    zero otherwise. For every v: the mean of dq is v, at most density * d coordinates are nonzero on
    average, and the mean of ||dq - v||² is at most step ||v||_1 <= ||v||² / density.
    Returns None if no coordinate is nonzero, if the step overflows, and for NaN.
    """
    step = _dither_step(squared_norm(v), density, like=v)
    if step is None:
        return None
    magnitude = (v.abs() / step).add_(dither).floor_()
    top = int(magnitude.max())
    if not top:
        return None
    levels = levels_for_bits(bits_for_levels(top))
    return _centered_codes(magnitude.mul_(v.sign()), levels, step, v.numel())


def _dither_step(squared: float, density: float, like: Vector) -> Vector | None:
    """Return the step of `stochastic_sparse`, None if there is none."""
    width = math.sqrt(squared / max(1, like.numel())) / density
    if not torch.finfo(like.dtype).tiny <= width <= torch.finfo(like.dtype).max:
        return None
    return like.new_full((1,), width)


def shared_dither(v: Vector, density: float, key: Key) -> Codes | None:
    """Quantize like `stochastic_sparse`, with a dither that the reader derives from a seed.

    The seed travels with the codes. Sent coordinates are likely where the dither is high, so their
    positions take a quarter to a half of the bytes.
    """
    seed = dither_seed(key, density)
    passes = fused_dither_passes(density, v)
    if passes is not None:
        fused = fused_dither(passes, v, None, 0.0, density, seed)
        return None if fused is None else fused.codes
    codes = stochastic_sparse(v, density, passes_for(v).dither(seed, v))
    return None if codes is None else replace(codes, dither_seed=seed)


def dither_seed(key: Key, density: float) -> int:
    """Return a seed whose dither has blocks of about 2 / density to 4 / density coordinates.

    The lowest four bits of a seed give the size of the blocks. Smaller blocks follow the rows of a
    model better, and larger ones are read faster.
    """
    block_bits = math.frexp(BLOCK_SENDS / density)[1] - 1
    return key.uint32() & ~15 | min(max(block_bits - MIN_BLOCK_BITS, 0), 15)


class FusedDither(NamedTuple):
    """Codes of v = gradient - memory, memory + rate dq if any, ||v||² and ||v - dq||²."""

    codes: Codes
    new_memory: Vector | None
    squared: float
    error_squared: float


def fused_dither_passes(density: float, *vectors: Vector) -> FusedPasses | None:
    """Return the passes with which `fused_dither` can quantize these vectors, None without any.

    The codes must fit: no coordinate exceeds density * sqrt(d) steps, because the step is rms /
    density.
    """
    count = vectors[0].numel()
    fits = density * math.sqrt(count) < MAX_FUSED_STEPS and count < MAX_FUSED_COORDINATES
    return fused_passes(passes_for(*vectors)) if fits else None


def fused_dither(
    passes: FusedPasses,
    gradient: Vector,
    memory: Vector | None,
    rate: float,
    density: float,
    seed: int,
) -> FusedDither | None:
    """Return the codes of `shared_dither` and what follows from them, in two passes.

    The grid depends on the largest number of steps, which the second pass finds. So the pass starts
    with a lower bound, and is repeated if a coordinate is rounded up to more.
    """
    largest, squared = passes.measure(gradient, memory)
    step = _dither_step(squared, density, like=gradient)
    if step is None:
        return None
    width = float(step)
    top = max(1, int(largest / width))
    while True:
        bits = bits_for_levels(top)
        grid = DitherGrid(width, seed, levels_for_bits(bits), code_dtype(bits))
        dithered = passes.dithered_codes(gradient, memory, rate, grid)
        top = dithered.top
        if not top:
            return None
        if bits_for_levels(top) == bits:
            codes = Codes(dithered.codes, bits, -(step * grid.centre), step, gradient.numel(), seed)
            return FusedDither(codes, dithered.new_memory, squared, dithered.error_squared)


def sparse(v: Vector, density: float) -> Codes | None:
    """Send the largest coordinates, k = max(1, density * d) of them, and zero for the others.

    Let t be the k-th largest |v_i|. The step is t / 0.6, and psi = sign(v) floor(|v| / step + 0.4),
    so a coordinate below t becomes zero. Sending a coordinate removes at least 5/9 of its square.
    Hence ||v - dq||² <= (1 - 5/9 density) ||v||² for every v, up to 1e9 coordinates and a density
    of 0.7; beyond, SPARSE_LEVELS may limit the magnitudes. Equal magnitudes are sent together.
    Returns None for the zero vector, which has no grid, and for NaN.
    """
    passes, largest = passes_for(v), max_norm(v)
    kth = passes.kth_largest(v, sent_count(v, density)) if v.numel() else 0.0
    grid = sparse_grid(largest, kth, like=v)
    if grid is None:
        return None
    top = sparse_top(grid, largest, like=v)
    codes = passes.sparse_codes(v, grid, top, code_dtype(bits_for_levels(top)))
    return make_sparse_codes(codes, grid, top, like=v)


def sent_count(v: Vector, density: float) -> int:
    """Return the number of coordinates that `sparse` sends if all magnitudes differ."""
    return max(1, round(density * v.numel()))


def sparse_grid(largest: float, kth: float, like: Vector) -> SparseGrid | None:
    """Return the grid of `sparse` for max |v| and the k-th largest |v_i|, None if there is none."""
    threshold = max(DEAD_ZONE * largest / SPARSE_LEVELS, kth)  # this order keeps NaN
    step = like.new_full((1,), threshold / DEAD_ZONE)
    return SparseGrid(float(step), 1 - DEAD_ZONE, threshold) if bool(step > 0) else None


def sparse_top(grid: SparseGrid, largest: float, like: Vector) -> int:
    """Return the number of steps of the largest coordinate."""
    return int(plain.magnitudes_on(grid, torch.tensor(largest, dtype=like.dtype)))


def make_sparse_codes(codes: torch.Tensor, grid: SparseGrid, top: int, like: Vector) -> Codes:
    """Return the codes with their grid in the vector's float type."""
    step = like.new_full((1,), grid.step)
    return Codes(codes, bits_for_levels(top), -(step * top), step, like.numel())


def levels_for_bits(bits: int) -> int:
    """Return the number of nonzero magnitudes that `bits` bits with a sign hold (6 bits: 31)."""
    return int(2 ** (bits - 1)) - 1


def bits_for_levels(levels: int) -> int:
    """Return the bits that hold 2 * levels + 1 values: a sign, `levels` magnitudes and zero."""
    return math.ceil(math.log2(2 * levels + 1))


def _centered_codes(signed: torch.Tensor, levels: int, step: Vector, bucket: int) -> Codes:
    """Return codes of multiples of the step from -levels to levels; the middle code is zero."""
    bits = bits_for_levels(levels)
    exact = signed.dtype if bits <= 24 else torch.float64  # float32 is exact up to 2**24
    codes = (signed.to(exact) + levels).to(code_dtype(bits))
    # not -norm, because the middle code must decode to exactly zero
    return Codes(codes, bits, -(step * levels), step, bucket)


def _bucket_rows(v: Vector, bucket: int) -> torch.Tensor:
    padding = -v.numel() % bucket
    return torch.nn.functional.pad(v, (0, padding)).reshape(-1, bucket)


@cache
def largest_float_up_to(top: int, dtype: torch.dtype) -> float:
    """Return the largest float that is at most `top`: float32 rounds 2**32 - 1 up to 2**32."""
    exact = torch.tensor(float(top), dtype=dtype)
    return float(exact if float(exact) <= top else torch.nextafter(exact, torch.zeros_like(exact)))
