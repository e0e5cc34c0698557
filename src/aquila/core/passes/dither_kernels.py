# mypy: ignore-errors
"""Triton kernels of the fused pass that rounds with a dither.

docs/wire-format-dithered.md defines the dither. The rank of a coordinate takes one product and one
shift per round, because numbers of fewer than 32 bits are kept in the highest bits of a word: sums
and products then need no mask. The keys of all blocks are computed first. `kernels.py` says how
programs walk over a vector.
"""

import triton
import triton.language as tl

from aquila.core.passes.kernels import LANES, ROWS, WIDTH, _divide

ROUNDS = tl.constexpr(6)
KEYS_PER_BLOCK = tl.constexpr(8)
BLOCKS_PER_PROGRAM = tl.constexpr(256)
ONES = tl.constexpr(0xFFFFFFFF)


@triton.jit
def _mix(words):
    """Mix words of 32 bits."""
    words = (words ^ (words >> 16)) * 0x21F0AAAD
    words = (words ^ (words >> 15)) * 0xD35A2D97
    return words ^ (words >> 15)


@triton.jit
def _words(seed, mixed_seed, indices):
    """Return the words of 32 bits of these indices."""
    return _mix(_mix(indices ^ mixed_seed) + seed)


@triton.jit(do_not_specialize=["seed", "block_bits", "blocks"])
def block_keys(keys, seed, block_bits, blocks):
    """Store per block and round the inverse factor, and what the round adds, in the highest bits.

    Each is a word of 32 bits. A pair of them is one number, so that one load reads both.
    """
    seed = seed.to(tl.uint32)
    unused = (32 - block_bits).to(tl.uint32)
    block = tl.program_id(0) * BLOCKS_PER_PROGRAM + tl.arange(0, BLOCKS_PER_PROGRAM)
    first = block.to(tl.uint32) * KEYS_PER_BLOCK
    for number in tl.static_range(ROUNDS):
        key = _words(seed, _mix(seed), ONES - (first + number))
        factor = (key >> 11) | 1
        inverse = factor
        for _ in tl.static_range(4):  # from 3 correct bits to 48
            inverse *= 2 - factor * inverse
        added = (0 - (key << unused)).to(tl.uint64)
        pair = (inverse.to(tl.uint64) << 32) | added
        at = block.to(tl.int64) * KEYS_PER_BLOCK + number
        tl.store(keys + at, pair.to(tl.int64, bitcast=True), block < blocks)


@triton.jit
def _dither(keys, at, seed, mixed_seed, block_bits, like):
    """Return the dither of coordinates in the type of `like`. There are keys for all of them."""
    unused = 32 - block_bits
    shift = (block_bits + 1) // 2
    place = at.to(tl.uint32)
    block = place >> block_bits
    own_keys = keys + block * KEYS_PER_BLOCK
    rank = place << unused
    used = tl.full([], ONES, tl.uint32) << unused
    for number in tl.static_range(ROUNDS):
        pair = tl.load(own_keys + (ROUNDS - 1 - number))
        rank = (rank ^ (rank >> shift)) & used
        rank = rank * (pair >> 32).to(tl.uint32) + pair.to(tl.uint32)
    slot = (block << block_bits) | (rank >> unused)
    word = ONES - (rank | (_words(seed, mixed_seed, slot) >> block_bits))
    if like.dtype == tl.float32:
        return (word >> 8).to(tl.int32).to(tl.float32) * (1.0 / (1 << 24))
    else:
        return word.to(tl.float64) * (1.0 / (1 << 32))


@triton.jit
def _whole_steps(v, spacing, dither, limit):
    """Return the number of steps, rounded down; NaN becomes 0."""
    steps = _divide(tl.abs(v), spacing) + dither
    return tl.minimum(tl.maximum(steps, 0.0), limit).to(tl.int32)


@triton.jit
def _load_rows(gradient, memory, at, lane, left):
    """Load all rows of a step first, so that stores and divisions do not delay loads."""
    loaded = ()
    for row in tl.static_range(ROWS):
        i, here = at + row * LANES, lane < left - row * LANES
        loaded += (tl.load(gradient + i, here, 0.0),)
        if memory is not None:
            loaded += (tl.load(memory + i, here, 0.0),)
    return loaded


@triton.jit(do_not_specialize=["seed", "block_bits", "centre", "count", "rows"])
def dithered_codes(
    gradient, memory, new_memory, codes, keys, squares, tops,
    step: tl.float64, rate: tl.float64, seed, block_bits, centre, count, rows,
):  # fmt: skip
    """Store codes and new memory, sum the squares of v - dq, and find the most steps."""
    REAL: tl.constexpr = gradient.dtype.element_ty
    seed, bits = seed.to(tl.uint32), block_bits.to(tl.uint32)
    mixed_seed = _mix(seed)
    spacing = tl.full([WIDTH], step, REAL)
    speed = tl.full([WIDTH], rate, REAL)
    middle = tl.full([WIDTH], centre, tl.int32)
    low = -(spacing * middle.to(REAL))
    limit = (middle + 1).to(REAL)
    lane = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    error = tl.zeros([WIDTH], tl.float64)
    top = tl.zeros([WIDTH], tl.int32)
    at = lane.to(tl.int64)
    for first in range(0, rows, ROWS):
        left = tl.minimum(count - tl.cast(first, tl.int64) * LANES, ROWS * LANES).to(tl.int32)
        loaded = _load_rows(gradient, memory, at, lane, left)
        for row in tl.static_range(ROWS):
            here = lane < left - row * LANES
            if memory is None:
                v = loaded[row]
            else:
                q = loaded[2 * row + 1]
                v = loaded[2 * row] - q
            dither = _dither(keys, at, seed, mixed_seed, bits, v)
            whole = _whole_steps(v, spacing, dither, limit)  # 0 beyond the end, where v is 0
            top = tl.maximum(top, whole)
            code = middle + tl.where(v < 0, -whole, whole)
            sent = code.to(REAL) * spacing + low
            tl.store(codes + at, code.to(codes.dtype.element_ty), here)
            if memory is not None:
                tl.store(new_memory + at, q + speed * sent, here)
            wide = (v - sent).to(tl.float64)
            error += wide * wide
            at += LANES
    tl.store(squares + lane, error)
    tl.store(tops + tl.program_id(0), tl.max(top, 0).to(REAL))
