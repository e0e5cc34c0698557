"""A second reader of frames, written only from docs/wire-format*.md: plain, slow, no dependencies.

It shares no code with the package, so the tests can compare two independent implementations.
"""

import math
import struct
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
from helpers.frame_reader.header import (
    CODED,
    DENSE,
    DITHERED,
    DOUBLE,
    EMPTY,
    FIXED,
    FRESH,
    REFUSED,
    RELAYED,
    read_header,
)
from helpers.frame_reader.relayed import Round, read_rounds
from helpers.frame_reader.source import FrameError, Source, check, rounded

__all__ = [
    "CODED",
    "DENSE",
    "DIRECT",
    "DITHERED",
    "EMPTY",
    "EXCEPTIONS",
    "FIXED",
    "PACKED",
    "RELAYED",
    "SIGNED_EXCEPTIONS",
    "ZIGZAG",
    "Dither",
    "DitheredStream",
    "Frame",
    "FrameError",
    "Round",
    "Source",
    "read",
    "read_segments",
]

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
    dimension: int
    rounds: list[Round]  # of a relayed frame
    header_bytes: int


def read(frame, dimension=None):
    """Return the content of a frame; `dimension` is the expected dimension, if known."""
    header, source = read_header(frame)
    kind, flags, d, bits, bucket = (
        header.kind, header.flags, header.dimension, header.bits, header.bucket,
    )  # fmt: skip
    header_bytes = 1 + source.position // 8
    check(not flags & REFUSED or kind == EMPTY, "refused, but with a vector")
    check(dimension is None or kind == EMPTY or d == dimension, "another dimension")
    float_code = "d" if flags & DOUBLE else "f"
    values, low, step, codes, segments, dither_seed, rounds = [], [], [], None, [], None, []
    if kind == EMPTY:
        check(bucket == flags & DOUBLE == 0, "empty, but describes a vector")
    elif kind == DENSE:
        check(bucket == 0, "dense in buckets")
        bits, values = 8 * struct.calcsize(float_code), source.floats(d, float_code)
    elif kind == RELAYED:
        check(bucket == 0, "relayed in buckets")
        check(dimension is not None or d <= LIMIT, "more than the limit")
        rounds = read_rounds(source)
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
        kind, header.round, header.ack - 1, header.refers_to, refused, fresh, header.scalars,
        double, bits, bucket, values, low, step, codes, segments, dither_seed, d, rounds,
        header_bytes,
    )  # fmt: skip


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
