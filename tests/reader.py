"""A second reader of frames, written from docs/wire-format.md alone: plain, slow, no dependencies.

`python tests/reader.py FILE` prints what a frame holds.
"""

import math
import re
import struct
import sys
import zlib
from dataclasses import dataclass
from itertools import accumulate

EMPTY, DENSE, FIXED, CODED = range(4)
PACKED, DIRECT, FOLDED, SPARSE, SIGNED = range(5)
DOUBLE, REFUSED, FRESH = 1, 2, 4
HEADER = struct.Struct("<4s4B5IB")
CHECKSUM = 4
NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{0,31}")
SHARES = 4096
LOWEST, HIGHEST = 2**15, 2**31 - 1  # of a state
LIMIT = 2**28  # coordinates of a coded frame, where the caller does not know how many to expect


class FrameError(ValueError):
    """The frame breaks a rule of the format."""


@dataclass(frozen=True)
class Frame:
    """What a frame holds; without a vector its values are empty, without codes those are None."""

    kind: int
    round: int
    ack: int
    answers: int
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
    segments: list[tuple[int, int]]  # mode and length of each, in a coded frame


def check(holds, complaint):
    if not holds:
        raise FrameError(complaint)


def read(frame, dimension=None):
    """Return what a frame holds, of `dimension` coordinates if that is known."""
    check(len(frame) >= HEADER.size + CHECKSUM, "shorter than an envelope")
    header = HEADER.unpack_from(frame)
    magic, version, kind, flags, bits, round_, ack, answers, d, bucket, count = header
    check(magic == b"AQLA" and version == 2, "not a frame of version 2")
    check(zlib.crc32(frame[:-CHECKSUM]) == int.from_bytes(frame[-CHECKSUM:], "little"), "damaged")
    check(kind <= CODED, "unknown kind")
    check(flags <= DOUBLE + REFUSED + FRESH, "unknown flags")
    check(not flags & REFUSED or kind == EMPTY, "refused, but with a vector")
    check(dimension is None or kind == EMPTY or d == dimension, "another dimension")
    source = Source(frame[HEADER.size : -CHECKSUM])
    scalars = read_scalars(source, count)
    letter = "d" if flags & DOUBLE else "f"
    values, low, step, codes, segments = [], [], [], None, []
    if kind == EMPTY:
        check(bits == d == bucket == flags & DOUBLE == 0, "empty, but described")
    elif kind == DENSE:
        check(bits == 8 * struct.calcsize(letter) and bucket == 0, "not how dense is described")
        values = source.floats(d, letter)
    else:
        check(1 <= bits <= 32, "no width for codes")
        check(bucket < d, "a bucket that is no part of the vector")
        bucket = bucket or d
        low, step = read_grids(source, -(-d // bucket), bits, letter)
        if kind == FIXED:
            codes = read_packed(source, d, bits)
        else:
            check(dimension is not None or d <= LIMIT, "more coordinates than the limit")
            codes, segments = read_segments(source, d, bits)
        values = [
            on_grid(code, low[i // bucket], step[i // bucket], letter)
            for i, code in enumerate(codes)
        ]
    check(source.place == 8 * len(source.data), "bytes behind the body")
    refused, fresh, double = (bool(flags & flag) for flag in (REFUSED, FRESH, DOUBLE))
    return Frame(
        kind, round_, ack - 1, answers, refused, fresh, scalars, double, bits, bucket, values,
        low, step, codes, segments,
    )  # fmt: skip


class Source:
    """Bytes that are read from the front, by bits or by whole bytes."""

    def __init__(self, data):
        self.data = data
        self.place = 0  # in bits

    def bits(self, n):
        """Return a field of n bits."""
        end = self.place + n
        check(end <= 8 * len(self.data), "ends too early")
        touched = self.data[self.place // 8 : -(-end // 8)]
        field = int.from_bytes(touched, "little") >> self.place % 8 & (1 << n) - 1
        self.place = end
        return field

    def close_bits(self):
        """Skip the bits that fill up a bit string."""
        check(self.bits(-self.place % 8) == 0, "a spare bit is set")

    def bytes(self, n):
        start = self.place // 8
        check(start + n <= len(self.data), "ends too early")
        self.place += 8 * n
        return self.data[start : start + n]

    def byte(self):
        return self.bytes(1)[0]

    def varint(self):
        number = 0
        for place in range(5):
            byte = self.byte()
            number |= (byte & 127) << 7 * place
            if byte < 128:
                check(byte > 0 or place == 0, "a whole number longer than needed")
                check(number < 2**32, "a whole number of more than 32 bits")
                return number
        raise FrameError("a whole number of more than 5 bytes")

    def floats(self, n, letter):
        values = list(struct.unpack(f"<{n}{letter}", self.bytes(n * struct.calcsize(letter))))
        check(all(map(math.isfinite, values)), "a number is NaN or infinite")
        return values


def read_scalars(source, count):
    scalars = {}
    for _ in range(count):
        name = source.bytes(source.byte())
        check(NAME.fullmatch(name) is not None, "no name for a scalar")
        check(name.decode() not in scalars, "a scalar is there twice")
        (scalars[name.decode()],) = source.floats(1, "d")
    return scalars


def read_grids(source, grids, bits, letter):
    low, step = source.floats(grids, letter), source.floats(grids, letter)
    for one_low, one_step in zip(low, step, strict=True):
        check(one_step >= 0, "a grid runs backwards")
        top = on_grid(2**bits - 1, one_low, one_step, letter)
        check(math.isfinite(top), "the top of a grid is not finite")
    return low, step


def on_grid(code, low, step, letter):
    return rounded(rounded(rounded(code, letter) * step, letter) + low, letter)


def rounded(number, letter):
    """Round to the frame's floats; exact, as float64 has more than twice the digits of float32."""
    try:
        return struct.unpack("<" + letter, struct.pack("<" + letter, number))[0]
    except OverflowError:
        return math.inf


def read_packed(source, n, bits):
    check(bits * n <= 8 * len(source.data) - source.place, "ends too early")
    codes = [source.bits(bits) for _ in range(n)]
    source.close_bits()
    return codes


def read_segments(source, d, bits):
    codes, segments = [], []
    while len(codes) < d:
        mode, n = source.byte(), source.varint()
        segments.append((mode, n))
        check(1 <= n <= d - len(codes), "a segment longer than what is missing")
        check(mode <= SIGNED, "unknown mode")
        if mode == PACKED:
            codes += read_packed(source, n, bits)
        elif mode == DIRECT:
            check(bits <= 8, "direct codes of more than 8 bits")
            codes += read_symbols(source, n, 2**bits)
        else:
            centre = source.varint()
            check(centre < 2**bits, "the centre is no code")
            folds = READ_FOLDS[mode](source, n)
            check(max(folds) < 2**bits, "a fold is no code")
            codes += [unfold(centre, fold) % 2**bits for fold in folds]
    return codes, segments


def unfold(centre, fold):
    return centre - (fold + 1) // 2 if fold % 2 else centre + fold // 2


def read_signed(source, n):
    check(n <= 8 * len(source.data) - source.place, "ends too early")
    signs = [source.bits(1) for _ in range(n)]
    source.close_bits()
    magnitudes = read_exceptions(source, n)
    return [2 * magnitude + sign for magnitude, sign in zip(magnitudes, signs, strict=True)]


def read_exceptions(source, n):
    """Return n numbers of which most are 0 and the others are listed."""
    m = source.varint()
    check(m <= n, "more exceptions than codes")
    numbers, place = [0] * n, -1
    if m > 0:
        gaps, values = read_numbers(source, m), read_numbers(source, m)
        for gap, value in zip(gaps, values, strict=True):
            place += gap + 1
            check(place < n, "an exception beyond the end")
            numbers[place] = value + 1
    return numbers


def read_numbers(source, n):
    symbols = read_symbols(source, n, 128)
    numbers = []
    for symbol in symbols:
        if symbol < 16:
            numbers.append(symbol)
        else:
            open_bits = symbol // 4 - 2
            numbers.append((4 + symbol % 4 << open_bits) + source.bits(open_bits))
    source.close_bits()
    return numbers


def read_symbols(source, n, limit):
    """Return n symbols below a limit."""
    shares = read_table(source)
    starts = [0, *accumulate(shares)]
    owner = [symbol for symbol, share in enumerate(shares) for _ in range(share)]
    word_count = source.varint()
    states = list(struct.unpack("<I" if n < 256 else "<4I", source.bytes(4 if n < 256 else 16)))
    check(all(LOWEST <= x <= HIGHEST for x in states), "a state out of range")
    words = iter(struct.unpack(f"<{word_count}H", source.bytes(2 * word_count)))
    symbols = []
    for i in range(n):
        x = states[i % len(states)]
        symbol = owner[x % SHARES]
        x = shares[symbol] * (x // SHARES) + x % SHARES - starts[symbol]
        if x < LOWEST:
            word = next(words, None)
            check(word is not None, "a word is missing")
            x = 65536 * x + word
        states[i % len(states)] = x
        symbols.append(symbol)
    check(all(x == LOWEST for x in states), "a state does not end where it must")
    check(next(words, None) is None, "words are left")
    check(max(symbols) < limit, "a symbol too large")
    return symbols


def read_table(source):
    size = source.byte() + 1
    shares, k = [], 0
    for _ in range(size):
        zeros = 0
        while source.bits(1) == 0:
            zeros += 1
            check(zeros <= 12, "a share too large")
        high = 2**zeros - 1 + source.bits(zeros)
        share = (high << k) + source.bits(k)
        shares.append(share)
        k = max(share.bit_length() - 1, 0)
        check(share <= SHARES, "a share too large")
    source.close_bits()
    check(sum(shares) == SHARES and shares[-1] > 0, "the shares do not add up")
    return shares


READ_FOLDS = {FOLDED: read_numbers, SPARSE: read_exceptions, SIGNED: read_signed}


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        print(read(file.read()))
