"""A second reader of frames, written only from docs/wire-format*.md: plain, slow, no dependencies.

It shares no code with the package, so the tests can compare two independent implementations.
"""

import math
import re
import struct
import zlib
from dataclasses import dataclass

from helpers.frame_reader.coded import (
    DIRECT,
    EXCEPTIONS,
    PACKED,
    SIGNED_EXCEPTIONS,
    ZIGZAG,
    read_packed,
    read_segments,
)
from helpers.frame_reader.dithered import Dither, DitheredStream
from helpers.frame_reader.source import FrameError, Source, check

__all__ = [
    "CODED",
    "DENSE",
    "DIRECT",
    "DITHERED",
    "EMPTY",
    "EXCEPTIONS",
    "FIXED",
    "PACKED",
    "SIGNED_EXCEPTIONS",
    "ZIGZAG",
    "Dither",
    "DitheredStream",
    "Frame",
    "FrameError",
    "Source",
    "read",
    "read_segments",
]

EMPTY, DENSE, FIXED, CODED, DITHERED = range(5)
DOUBLE, REFUSED, FRESH = 1, 2, 4
CHECKSUM = 4
NUMBERED_NAMES = [
    "drift", "share", "rate", "boost", "loss", "lr_factor", "report_loss", "query_loss", "seed",
    "size", "bits", "levels", "full", "age", "tensors",
]  # fmt: skip
NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{0,31}")
LIMIT = 2**28  # coordinates of a coded or dithered frame if the caller expects no dimension


@dataclass(frozen=True)
class Frame:
    """The content of a frame. `values` is empty without a vector, `codes` is None without codes."""

    kind: int
    round: int
    ack: int
    refers_to: int
    refused: bool
    fresh: bool
    scalars: dict[str, float]
    double: bool
    bits: int
    bucket: int
    values: list[float]
    low: list[float]
    step: list[float]
    codes: list[int] | None
    segments: list[tuple[int, int]]  # mode and length of each segment of a coded frame
    dither_seed: int | None
    header_bytes: int


def read(frame, dimension=None):
    """Return the content of a frame; `dimension` is the expected dimension, if known."""
    check(len(frame) >= 7 and frame[0] == 0xA3, "not a frame of version 3")
    check(zlib.crc32(frame[:-CHECKSUM]) == int.from_bytes(frame[-CHECKSUM:], "little"), "damaged")
    source = Source(frame[1:-CHECKSUM])
    kind, flags, refers, more = (source.bits(n) for n in (3, 3, 1, 1))
    check(kind <= DITHERED, "unknown kind")
    check(not flags & REFUSED or kind == EMPTY, "refused, but with a vector")
    round_ = source.varint()
    refers_to = source.bits(32) if refers else 0
    check(refers_to > 0 or not refers, "a checksum of 0 is written")
    float_code = "d" if flags & DOUBLE else "f"
    d = source.varint() if kind != EMPTY else 0
    bits = source.byte() if kind >= FIXED else 8 * struct.calcsize(float_code) * (kind == DENSE)
    ack, bucket, scalars = read_more(source) if more else (0, 0, {})
    header_bytes = 1 + source.position // 8
    check(dimension is None or kind == EMPTY or d == dimension, "another dimension")
    values, low, step, codes, segments, dither_seed = [], [], [], None, [], None
    if kind == EMPTY:
        check(bucket == flags & DOUBLE == 0, "empty, but describes a vector")
    elif kind == DENSE:
        check(bucket == 0, "dense in buckets")
        values = source.floats(d, float_code)
    else:
        check(1 <= bits <= 32, "the bits are not 1 to 32")
        check(bucket < d, "the bucket is not smaller than the vector")
        check(kind != DITHERED or bucket == 0, "dithered in buckets")
        check(kind == FIXED or dimension is not None or d <= LIMIT, "more than the limit")
        bucket = bucket or d
        if kind == DITHERED:
            low, step, dither_seed, codes = read_dithered(source, d, bits, float_code)
        else:
            low, step = read_grids(source, -(-d // bucket), bits, float_code)
            codes, segments = READ_CODES[kind](source, d, bits)
        values = decode(codes, low, step, bucket, float_code)
    check(source.bits_left == 0, "bytes after the body")
    refused, fresh, double = (bool(flags & flag) for flag in (REFUSED, FRESH, DOUBLE))
    return Frame(
        kind, round_, ack - 1, refers_to, refused, fresh, scalars, double, bits, bucket, values,
        low, step, codes, segments, dither_seed, header_bytes,
    )  # fmt: skip


def read_more(source):
    """Return ack, bucket and the scalars."""
    ack, bucket, count = source.varint(), source.varint(), source.byte()
    check(ack or bucket or count, "fields that say nothing")
    scalars = {}
    for _ in range(count):
        single, field = source.bits(1), source.bits(7)
        name = read_name(source, field)
        check(name not in scalars, "a scalar occurs twice")
        (value,) = source.floats(1, "f" if single else "d")
        check(single or rounded(value, "f") != value, "a float64 where float32 holds the value")
        scalars[name] = value
    return ack, bucket, scalars


def read_name(source, field):
    if field > 32:
        check(field - 33 < len(NUMBERED_NAMES), "an unknown number of a name")
        return NUMBERED_NAMES[field - 33]
    name = source.bytes(field)
    check(NAME.fullmatch(name) is not None, "an invalid name of a scalar")
    check(name.decode() not in NUMBERED_NAMES, "a name that has a number")
    return name.decode()


def read_grids(source, grids, bits, float_code):
    low, step = source.floats(grids, float_code), source.floats(grids, float_code)
    for one_low, one_step in zip(low, step, strict=True):
        check_grid(one_low, one_step, bits, float_code)
    return low, step


def check_grid(low, step, bits, float_code):
    check(step >= 0, "a negative step")
    top = decode_one(2**bits - 1, low, step, float_code)
    check(math.isfinite(low) and math.isfinite(top), "an end of a grid is not finite")


def decode(codes, low, step, bucket, float_code):
    grids = ((low[i // bucket], step[i // bucket]) for i in range(len(codes)))
    return [decode_one(code, *grid, float_code) for code, grid in zip(codes, grids, strict=True)]


def decode_one(code, low, step, float_code):
    return rounded(rounded(rounded(code, float_code) * step, float_code) + low, float_code)


def rounded(number, float_code):
    """Round to the frame's floats.

    A float32 product or sum is rounded twice, first to float64. That gives the correct bits,
    because float64 has more than twice the digits of float32.
    """
    try:
        return struct.unpack("<" + float_code, struct.pack("<" + float_code, number))[0]
    except OverflowError:
        return math.inf


def read_fixed(source, d, bits):
    return read_packed(source, d, bits), []


def read_dithered(source, d, bits, float_code):
    """Return low, step, the seed of the dither and the codes."""
    check(bits >= 2, "dithered codes of one bit")
    centre = 2 ** (bits - 1) - 1
    (step,) = source.floats(1, float_code)
    low = -rounded(rounded(centre, float_code) * step, float_code)
    check_grid(low, step, bits, float_code)
    seed, sparsity = source.bits(32), source.byte()
    stream = DitheredStream(source.rest(), seed, sparsity, d)
    codes = [centre + distance for distance in stream.distances()]
    check(min(codes) >= 0 and max(codes) < 2**bits, "a code does not fit the bits")
    return [low], [step], seed, codes


READ_CODES = {FIXED: read_fixed, CODED: read_segments}
