# mypy: ignore-errors
"""Triton kernels of the two fused passes of error feedback, and of the selection between them.

The k-th largest magnitude is found as on the CPU: a sample gives a bound that is likely a little
below it, the first pass collects the magnitudes above the bound, and the search continues among
these. Magnitudes compare like the integers with the same bits. `kernels.py` says how programs walk
over a vector. The selection is for float32 only.
"""

import triton
import triton.language as tl

from aquila.core.passes.kernels import (
    LANES,
    PROGRAMS,
    ROWS,
    WIDTH,
    _divide,
    _ordered_bits,
)

GROUP = tl.constexpr(16)
SAMPLE = tl.constexpr(16384)
LEVELS = tl.constexpr(3)
DIGIT_BITS = tl.constexpr(12)
BINS = tl.constexpr(4096)
STATE = tl.constexpr(4)


@triton.jit(do_not_specialize=["count", "rank"])
def sample_bound(error, gradient, memory, bound, count, rank):
    """Store the highest 15 bits of a magnitude: that of a rank among sampled coordinates."""
    i = tl.arange(0, SAMPLE)
    at = (i // GROUP).to(tl.int64) * (count // (SAMPLE // GROUP)) + i % GROUP
    v = tl.load(error + at) + (tl.load(gradient + at) - tl.load(memory + at))
    bits = _ordered_bits(tl.abs(v))
    found = 0
    for number in tl.static_range(15):
        trial = found | (1 << (30 - number))
        enough = tl.sum((bits >= trial).to(tl.int32), 0) >= rank
        found = tl.where(enough, trial, found)
    tl.store(bound, found)


@triton.jit(do_not_specialize=["count", "rows", "room"])
def accumulate(
    error, gradient, memory, total, squares, magnitudes, bound, collected, found, count, rows, room
):
    """Store v = error + (gradient - memory), sum its squares and find the largest magnitudes.

    Each lane collects its magnitudes of at least the bound, up to `room` of them.
    """
    REAL: tl.constexpr = gradient.dtype.element_ty
    lane = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    largest = _ordered_bits(tl.zeros([WIDTH], REAL))
    squared = tl.zeros([WIDTH], tl.float64)
    number = tl.zeros([WIDTH], tl.int32)
    if bound is not None:
        least = tl.load(bound)
    at = lane.to(tl.int64)
    for _first in range(0, rows, ROWS):
        loaded = ()
        for row in tl.static_range(ROWS):
            i = at + row * LANES
            e, g = tl.load(error + i, i < count, 0.0), tl.load(gradient + i, i < count, 0.0)
            loaded += (e, g, tl.load(memory + i, i < count, 0.0))
        for row in tl.static_range(ROWS):
            here = at < count
            v = loaded[3 * row] + (loaded[3 * row + 1] - loaded[3 * row + 2])
            tl.store(total + at, v, here)
            bits = _ordered_bits(tl.abs(v))
            largest = tl.maximum(largest, bits)
            wide = v.to(tl.float64)
            squared += wide * wide
            if bound is not None:
                chosen = here & (bits >= least)
                slot = number.to(tl.int64) * LANES + lane
                tl.store(collected + slot, bits, chosen & (number < room))
                number += chosen.to(tl.int32)
            at += LANES
    tl.store(squares + lane, squared)
    tl.store(magnitudes + tl.program_id(0), tl.max(largest, 0).to(REAL, bitcast=True))
    if bound is not None:
        tl.store(found + lane, number)


@triton.jit
def _bit_length(number):
    """Return the bits that a number that is not negative takes."""
    return tl.sum((number >> tl.arange(0, 32) > 0).to(tl.int32), 0)


@triton.jit
def _narrow(bins, low, span, rank):
    """Return low end, width in bits and remaining rank of the bin that holds the rank."""
    shift = tl.maximum(span - DIGIT_BITS, 0)
    above = tl.cumsum(tl.load(bins + tl.arange(0, BINS)), 0, reverse=True)
    bin = tl.maximum(tl.sum((above >= rank).to(tl.int32), 0) - 1, 0)
    larger = tl.max(tl.where(above < rank, above, 0), 0)
    return low + (bin << shift), shift, rank - larger


@triton.jit(do_not_specialize=["k", "room"])
def count_digit(collected, found, magnitudes, bound, bins, state, k, room, LEVEL: tl.constexpr):
    """Count the collected magnitudes per bin of the range that holds the k-th largest one.

    The bins of the level before give the range. `state` has low end, width and rank per level.
    """
    if LEVEL == 0:
        largest = tl.max(_ordered_bits(tl.load(magnitudes + tl.arange(0, PROGRAMS))), 0)
        low = tl.load(bound)
        span = _bit_length(tl.maximum(largest - low, 0))
        rank = k
    else:
        before = state + (LEVEL - 1) * STATE
        low, span, rank = tl.load(before), tl.load(before + 1), tl.load(before + 2)
        low, span, rank = _narrow(bins + (LEVEL - 1) * BINS, low, span, rank)
    if tl.program_id(0) == 0:
        own = state + LEVEL * STATE
        tl.store(own, low)
        tl.store(own + 1, span)
        tl.store(own + 2, rank)
    lane = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    number = tl.minimum(tl.load(found + lane), room)
    shift = tl.maximum(span - DIGIT_BITS, 0)
    slot = lane.to(tl.int64)
    for row in range(0, tl.max(number, 0)):
        here = row < number
        bits = tl.load(collected + slot, here, 0)
        slot += LANES
        offset = bits - low
        matches = here & (offset >= 0) & ((offset >> span) == 0)
        tl.atomic_add(bins + LEVEL * BINS + tl.where(matches, offset >> shift, 0), 1, matches)


@triton.jit(do_not_specialize=["k", "room"])
def finish_selection(found, bins, state, result, k, room):
    """Store the k-th largest magnitude, or -1 if it is not among the collected ones."""
    last = state + (LEVELS - 1) * STATE
    low, span, rank = tl.load(last), tl.load(last + 1), tl.load(last + 2)
    low, span, rank = _narrow(bins + (LEVELS - 1) * BINS, low, span, rank)
    total, most = 0, 0
    for first in range(0, LANES, 8192):
        number = tl.load(found + first + tl.arange(0, 8192))
        total += tl.sum(number, 0)
        most = tl.maximum(most, tl.max(number, 0))
    is_known = (total >= k) & (most <= room)
    kth = low.to(tl.float32, bitcast=True).to(tl.float64)
    tl.store(result, tl.where(is_known, kth, -1.0))


@triton.jit(do_not_specialize=["top", "count", "rows"])
def feed_back(
    v, memory, new_memory, codes, squares,
    step: tl.float64, lift: tl.float64, threshold: tl.float64, rate: tl.float64, top, count, rows,
):  # fmt: skip
    """Store codes, the rest of v in its place and the new memory; sum the squares of the rest."""
    REAL: tl.constexpr = v.dtype.element_ty
    spacing = tl.full([WIDTH], step, REAL)
    offset = tl.full([WIDTH], lift, REAL)
    least = tl.full([WIDTH], threshold, REAL)
    speed = tl.full([WIDTH], rate, REAL)
    middle = tl.full([WIDTH], top, tl.int32)
    most = middle.to(REAL)
    low = -(spacing * most)
    lane = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    error = tl.zeros([WIDTH], tl.float64)
    at = lane.to(tl.int64)
    for _first in range(0, rows, ROWS):
        loaded = ()
        for row in tl.static_range(ROWS):
            i = at + row * LANES
            loaded += (tl.load(v + i, i < count, 0.0), tl.load(memory + i, i < count, 0.0))
        for row in tl.static_range(ROWS):
            here = at < count
            before, q = loaded[2 * row], loaded[2 * row + 1]
            size = tl.abs(before)
            magnitude = _divide(size, spacing) + offset
            magnitude = tl.where(magnitude > 0, magnitude, 0.0)  # NaN becomes 0
            whole = tl.where(magnitude < most, magnitude, most).to(tl.int32)  # rounds down
            whole = tl.where(size == least, 1, whole)
            whole = tl.where(before < 0, -whole, tl.where(before > 0, whole, 0))
            code = middle + whole
            sent = code.to(REAL) * spacing + low
            rest = before - sent
            tl.store(codes + at, code.to(codes.dtype.element_ty), here)
            tl.store(v + at, rest, here)
            tl.store(new_memory + at, q + speed * sent, here)
            wide = tl.where(here, rest, 0.0).to(tl.float64)
            error += wide * wide
            at += LANES
    tl.store(squares + lane, error)
