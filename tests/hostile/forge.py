"""Frames made by hand from docs/wire-format.md, so that they can lie anywhere."""

import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate, pairwise

EMPTY, DENSE, FIXED, CODED = range(4)
PACKED, DIRECT, FOLDED, SPARSE, SIGNED = range(5)
DOUBLE, REFUSED, FRESH = 1, 2, 4
LOWEST = 2**15  # of a state
SHARES = 4096


@dataclass(frozen=True)
class Forged:
    """A frame whose checksum always matches."""

    magic: bytes = b"AQLA"
    version: int = 2
    kind: int = EMPTY
    flags: int = 0
    bits: int = 0
    round: int = 3
    ack: int = 0
    answers: int = 0
    dimension: int = 0
    bucket: int = 0
    count: int = 0
    scalars: bytes = b""
    body: bytes = b""

    def bytes(self):
        header = struct.pack(
            "<4s4B5IB", self.magic, self.version, self.kind, self.flags, self.bits, self.round,
            self.ack, self.answers, self.dimension, self.bucket, self.count,
        )  # fmt: skip
        return sealed(header + self.scalars + self.body)


def sealed(content):
    return content + struct.pack("<I", zlib.crc32(content))


def scalar(name, value=1.0, length=None):
    return bytes([len(name) if length is None else length]) + name + struct.pack("<d", value)


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def doubles(*values):
    return struct.pack(f"<{len(values)}d", *values)


# ---- building blocks of coded bodies ----


def varint(number):
    if number < 128:
        return bytes([number])
    return bytes([number & 127 | 128]) + varint(number >> 7)


def bit_string(fields):
    """Return (value, width) after (value, width), the least significant bit first."""
    whole = place = 0
    for value, width in fields:
        whole |= value << place
        place += width
    return whole.to_bytes(-(-place // 8), "little")


def share_fields(shares):
    order = 0
    for share in shares:
        high = (share >> order) + 1
        zeros = high.bit_length() - 1
        yield 1 << zeros, zeros + 1
        yield high - (1 << zeros), zeros
        yield share & (1 << order) - 1, order
        order = max(share.bit_length() - 1, 0)


def table(shares):
    return bytes([len(shares) - 1]) + bit_string(share_fields(shares))


def shares_of(symbols):
    """Return shares of at least 1 for all symbols that come."""
    counts = Counter(symbols)
    shares = [0] * (max(counts) + 1)
    for symbol, count in counts.items():
        shares[symbol] = max(SHARES * count // len(symbols), 1)
    shares[counts.most_common(1)[0][0]] += SHARES - sum(shares)
    return shares


@dataclass(frozen=True)
class Stream:
    """A stream of symbols in its parts."""

    shares: list[int]
    states: list[int]
    words: list[int]

    def bytes(self):
        states = struct.pack(f"<{len(self.states)}I", *self.states)
        words = struct.pack(f"<{len(self.words)}H", *self.words)
        return table(self.shares) + varint(len(self.words)) + states + words


def stream(symbols, shares=None):
    shares = shares or shares_of(symbols)
    starts = [0, *accumulate(shares)]
    states, words = [LOWEST] * (1 if len(symbols) < 256 else 4), []
    for i in reversed(range(len(symbols))):
        x, share, start = states[i % len(states)], shares[symbols[i]], starts[symbols[i]]
        if x >= share << 19:
            words.append(x % 65536)
            x //= 65536
        states[i % len(states)] = SHARES * (x // share) + x % share + start
    return Stream(shares, states, words[::-1])


def numbers(values):
    symbols, fields = [], []
    for value in values:
        open_bits = max(value.bit_length() - 3, 0)
        small = value < 16
        symbols.append(value if small else 4 * open_bits + 4 + (value >> open_bits))
        fields.append((0, 0) if small else (value & (1 << open_bits) - 1, open_bits))
    return stream(symbols).bytes() + bit_string(fields)


def exceptions(gaps, values):
    listed = numbers(gaps) + numbers(values) if gaps else b""
    return varint(len(gaps)) + listed


# ---- segments ----


def segment(mode, length, content):
    return bytes([mode]) + varint(length) + content


def packed(codes, bits):
    return segment(PACKED, len(codes), bit_string((code, bits) for code in codes))


def direct(codes):
    return segment(DIRECT, len(codes), stream(codes).bytes())


def folded(centre, folds):
    return segment(FOLDED, len(folds), varint(centre) + numbers(folds))


def sparse(length, centre, gaps=(), values=()):
    return segment(SPARSE, length, varint(centre) + exceptions(gaps, values))


def signed(signs, centre, gaps=(), values=()):
    plane = bit_string((sign, 1) for sign in signs)
    return segment(SIGNED, len(signs), varint(centre) + plane + exceptions(gaps, values))


def fold(code, centre, bits):
    distance = (code - centre) % 2**bits
    return 2 * distance if 2 * distance < 2**bits else 2 * (2**bits - distance) - 1


def gaps_and_values(folds):
    """Return where folds that are not 0 are, and what they are."""
    places = [-1, *(i for i, number in enumerate(folds) if number)]
    gaps = [place - before - 1 for before, place in pairwise(places)]
    return gaps, [folds[place] - 1 for place in places[1:]]


def in_mode(mode, codes, bits, centre):
    """Return a sound segment of these codes in a mode, whether that suits them or not."""
    folds = [fold(code, centre, bits) for code in codes]
    if mode == PACKED:
        return packed(codes, bits)
    if mode == DIRECT:
        return direct(codes)
    if mode == FOLDED:
        return folded(centre, folds)
    if mode == SPARSE:
        return sparse(len(codes), centre, *gaps_and_values(folds))
    signs = [number % 2 for number in folds]
    return signed(signs, centre, *gaps_and_values([number // 2 for number in folds]))
