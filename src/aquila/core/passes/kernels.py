# mypy: ignore-errors
"""Triton kernels of the two passes of an innovation.

`core/vector.py` defines lanes. Each program owns some of them and walks over the rows of the
vector. It loads several rows at a time, so that enough loads are in flight. The compiler must not
contract a product and a sum to a fused multiply-add: it rounds once, and the other implementations
round twice. Divisions must round correctly.
"""

import torch
import triton
import triton.language as tl

from aquila.core.passes import plain

if torch.version.hip or tuple(map(int, triton.__version__.split(".")[:2])) < (3, 6):
    raise ImportError(
        "needs CUDA and Triton 3.6; earlier versions flush subnormal numbers in divisions"
    )

LANES = tl.constexpr(plain.LANES)
WIDTH = tl.constexpr(256)
PROGRAMS = tl.constexpr(plain.LANES // 256)
ROWS = tl.constexpr(8)


@triton.jit
def _sum_halves(x, TIMES: tl.constexpr):
    """Add the two halves, TIMES times. Sums of two terms have the same bits in any order."""
    for _ in tl.static_range(TIMES):
        x = tl.sum(tl.reshape(x, [2, x.shape[0] // 2]), 0)
    return x


@triton.jit
def _sum_quarter(lanes, number: tl.constexpr):
    """Add the lanes with the same i % 1024 and i // 1024 % 4 == `number`, to 1024 lanes."""
    i = tl.arange(0, 16384)
    return _sum_halves(tl.load(lanes + i // 1024 * 4096 + number * 1024 + i % 1024), 4)


@triton.jit
def _sum_lanes(lanes):
    """Add all lanes by halves, a quarter at a time because of the number of registers."""
    even = _sum_quarter(lanes, 0) + _sum_quarter(lanes, 2)
    odd = _sum_quarter(lanes, 1) + _sum_quarter(lanes, 3)
    return tl.sum(_sum_halves(even + odd, 10), 0)


@triton.jit
def _ordered_bits(magnitude):
    """Return integers in the order of the magnitudes, with NaN above all others."""
    if magnitude.dtype == tl.float32:
        return magnitude.to(tl.int32, bitcast=True)
    else:
        return magnitude.to(tl.int64, bitcast=True)


@triton.jit
def _divide(x, y):
    """Divide with correct rounding, which `/` guarantees only in float64."""
    if x.dtype == tl.float32:
        return tl.div_rn(x, y)
    else:
        return x / y


@triton.jit(do_not_specialize=["count", "rows"])
def measure(gradient, memory, squares, magnitudes, count, rows):
    """Sum the squares of v per lane, and find the largest magnitude per program."""
    REAL: tl.constexpr = gradient.dtype.element_ty
    lane = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    largest = _ordered_bits(tl.zeros([WIDTH], REAL))
    total = tl.zeros([WIDTH], tl.float64)
    at = lane.to(tl.int64)
    for _first in range(0, rows, ROWS):
        for _ in tl.static_range(ROWS):
            here = at < count
            v = tl.load(gradient + at, here, 0.0)
            if memory is not None:
                v -= tl.load(memory + at, here, 0.0)
            largest = tl.maximum(largest, _ordered_bits(tl.abs(v)))
            wide = v.to(tl.float64)
            total += wide * wide
            at += LANES
    tl.store(squares + lane, total)
    tl.store(magnitudes + tl.program_id(0), tl.max(largest, 0).to(REAL, bitcast=True))


@triton.jit
def finish_measure(squares, magnitudes, result):
    """Store max |v| and ||v||²."""
    REAL: tl.constexpr = magnitudes.dtype.element_ty
    largest = tl.max(_ordered_bits(tl.load(magnitudes + tl.arange(0, PROGRAMS))), 0)
    tl.store(result, largest.to(REAL, bitcast=True).to(tl.float64))
    tl.store(result + 1, _sum_lanes(squares))


@triton.jit(do_not_specialize=["count", "rows"])
def quantize(
    gradient, memory, new_memory, codes, squares,
    largest: tl.float64, step: tl.float64, last: tl.float64, count, rows,
):  # fmt: skip
    """Store the codes and the new memory, and sum the squares of dq and v - dq per lane."""
    REAL: tl.constexpr = gradient.dtype.element_ty
    R = tl.full([WIDTH], largest, REAL)
    spacing = tl.full([WIDTH], step, REAL)
    top = tl.full([WIDTH], last, REAL)
    lane = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    sent = tl.zeros([WIDTH], tl.float64)
    error = tl.zeros([WIDTH], tl.float64)
    at = lane.to(tl.int64)
    for _first in range(0, rows, ROWS):
        loaded = ()  # load all rows first, so that stores and divisions do not delay loads
        for row in tl.static_range(ROWS):
            i = at + row * LANES
            loaded += (tl.load(gradient + i, i < count, 0.0), tl.load(memory + i, i < count, 0.0))
        for row in tl.static_range(ROWS):
            here = at < count
            q = loaded[2 * row + 1]
            v = loaded[2 * row] - q
            psi = _divide(v + R, spacing) + 0.5
            psi = tl.where(psi > 0, psi, 0.0)  # NaN becomes code 0
            code = tl.where(psi < top, psi, top).to(tl.int32)  # rounds down, as psi >= 0
            dq = tl.where(here, code.to(REAL) * spacing - R, 0.0)
            tl.store(codes + at, code.to(codes.dtype.element_ty), here)
            tl.store(new_memory + at, q + dq, here)
            wide = dq.to(tl.float64)
            sent += wide * wide
            wide = (v - dq).to(tl.float64)
            error += wide * wide
            at += LANES
    tl.store(squares + lane, sent)
    tl.store(squares + LANES + lane, error)


@triton.jit
def finish_quantize(squares, result):
    """Store ||dq||² and ||v - dq||², one per program."""
    number = tl.program_id(0)
    tl.store(result + number, _sum_lanes(squares + number * LANES))
