"""Frames made by hand from docs/wire-format.md, so that they can lie anywhere."""

import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate, pairwise

EMPTY, DENSE, FIXED, CODED, DITHERED = range(5)
PACKED, DIRECT, ZIGZAG, SPARSE, SIGNED = range(5)
DOUBLE, REFUSED, FRESH = 1, 2, 4
LOWEST_STATE = 2**15  # of a state
SHARES = 4096
STARTS = [1, 15, 249, 1011, 2034, 2886, 3438, 3753, 3920, 3973]  # of 4096, as shares are


@dataclass(frozen=True)
class RawFrame:
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
        return with_crc(header + self.scalars + self.body)


def with_crc(content):
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


def share_bit_fields(shares):
    order = 0
    for share in shares:
        high = (share >> order) + 1
        zeros = high.bit_length() - 1
        yield 1 << zeros, zeros + 1
        yield high - (1 << zeros), zeros
        yield share & (1 << order) - 1, order
        order = max(share.bit_length() - 1, 0)


def table(shares):
    return bytes([len(shares) - 1]) + bit_string(share_bit_fields(shares))


def symbol_shares(symbols):
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
    shares = shares or symbol_shares(symbols)
    starts = [0, *accumulate(shares)]
    states, words = [LOWEST_STATE] * (1 if len(symbols) < 256 else 4), []
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


def exception_list(gaps, values):
    listed = numbers(gaps) + numbers(values) if gaps else b""
    return varint(len(gaps)) + listed


# ---- segments ----


def segment(mode, length, content):
    return bytes([mode]) + varint(length) + content


def packed_segment(codes, bits):
    return segment(PACKED, len(codes), bit_string((code, bits) for code in codes))


def direct_segment(codes):
    return segment(DIRECT, len(codes), stream(codes).bytes())


def zigzag_segment(centre, zigzags):
    return segment(ZIGZAG, len(zigzags), varint(centre) + numbers(zigzags))


def sparse_segment(length, centre, gaps=(), values=()):
    return segment(SPARSE, length, varint(centre) + exception_list(gaps, values))


def signed_segment(signs, centre, gaps=(), values=()):
    plane = bit_string((sign, 1) for sign in signs)
    return segment(SIGNED, len(signs), varint(centre) + plane + exception_list(gaps, values))


def zigzag(code, centre, bits):
    distance = (code - centre) % 2**bits
    return 2 * distance if 2 * distance < 2**bits else 2 * (2**bits - distance) - 1


def gaps_and_values(zigzags):
    """Return where folds that are not 0 are, and what they are."""
    places = [-1, *(i for i, number in enumerate(zigzags) if number)]
    gaps = [place - before - 1 for before, place in pairwise(places)]
    return gaps, [zigzags[place] - 1 for place in places[1:]]


def segment_in_mode(mode, codes, bits, centre):
    """Return a sound segment of these codes in a mode, whether that suits them or not."""
    zigzags = [zigzag(code, centre, bits) for code in codes]
    if mode == PACKED:
        return packed_segment(codes, bits)
    if mode == DIRECT:
        return direct_segment(codes)
    if mode == ZIGZAG:
        return zigzag_segment(centre, zigzags)
    if mode == SPARSE:
        return sparse_segment(len(codes), centre, *gaps_and_values(zigzags))
    signs = [number % 2 for number in zigzags]
    return signed_segment(signs, centre, *gaps_and_values([number // 2 for number in zigzags]))


# ---- dithered bodies ----


def mix(x):
    for shift, factor in ((16, 0x21F0AAAD), (15, 0xD35A2D97)):
        x = (x ^ x >> shift) * factor % 2**32
    return x ^ x >> 15


def dither_word(i, seed):
    return mix((mix(i ^ mix(seed)) + seed) % 2**32)


def band(i, seed):
    ones = f"{dither_word(i, seed):032b}".find("0")
    return 31 if ones < 0 else ones


def choose_rarity(distances):
    """Return what a writer chooses: the power of two below coordinates a winner."""
    sent_count = len(distances) - list(distances).count(0)
    return min((len(distances) // sent_count).bit_length() - 1, 31) if sent_count else 31


class Context:
    """Chance of a 1, in units of 2^-22, twice: of late and over all."""

    def __init__(self, start=SHARES // 2, seen=0):
        self.fast, self.slow, self.seen = start << 10, start << 10, seen

    def shares(self):
        return max(self.fast + self.slow >> 7, 1)

    def learn(self, bit):
        target = bit << 22
        for name, most in (("fast", 30), ("slow", 254)):
            chance = getattr(self, name)
            moved = 2 * abs(target - chance) // (2 * min(self.seen, most) + 3)
            setattr(self, name, chance + moved if bit else chance - moved)
        self.seen = min(self.seen + 1, 254)


class RangeEncoder:
    """A range coder that writes one whole number, whose bytes are the stream."""

    def __init__(self):
        self.low, self.range, self.shifts = 0, 2**32 - 1, 0

    def encode_bit(self, bit, shares=32768):
        bound = (self.range >> 16) * shares
        if bit:
            self.range = bound
        else:
            self.low, self.range = self.low + bound, self.range - bound
        while self.range < 2**24:
            self.low, self.range, self.shifts = self.low << 8, self.range << 8, self.shifts + 1

    def encode_adaptive(self, bit, context):
        self.encode_bit(bit, context.shares())
        context.learn(bit)

    def number(self, value, contexts):
        """Write a number; 2^32 - 1 and above, which have no code, as zeros in all contexts."""
        width = (value + 1).bit_length() - 1
        for context in contexts[:width]:
            self.encode_adaptive(0, context)
        if width < len(contexts):
            self.encode_adaptive(1, contexts[width])
            for place in reversed(range(width)):
                self.encode_bit(value + 1 >> place & 1)

    @property
    def taken(self):
        """Bytes that a reader takes, those beyond the end of the stream included."""
        return 4 + self.shifts

    def bytes(self):
        kept_bytes = next(k for k in range(5) if self.rounded_up(k) < self.low + self.range)
        return self.rounded_up(kept_bytes).to_bytes(self.taken, "big").rstrip(b"\0")

    def rounded_up(self, kept_bytes):
        unit = 256 ** (4 - kept_bytes)
        return -(-self.low // unit) * unit


def encode_decisions(distances, seed, rarity, listed):
    """Return the decisions of a dithered body; listed are pairs of a gap and a distance."""
    encoder, first_band = RangeEncoder(), max(rarity - 4, 0)
    gaps, magnitudes = ([Context() for _ in range(32)] for _ in range(2))
    sent_contexts = {k: Context(STARTS[min(k - rarity + 4, 9)], 4) for k in range(first_band, 32)}

    def write_sent(distance):
        encoder.encode_bit(distance < 0)
        encoder.number(abs(distance) - 1, magnitudes)

    for gap, distance in listed:
        encoder.number(gap, gaps)
        write_sent(distance)
    for i, distance in enumerate(distances):
        if band(i, seed) >= first_band:
            encoder.encode_adaptive(distance != 0, sent_contexts[band(i, seed)])
            if distance:
                write_sent(distance)
    return encoder


def list_rare(distances, seed, rarity):
    """Return gap and distance of the winners that have no decision of their own."""
    listed, after = [], 0
    for i, distance in enumerate(distances):
        if distance and band(i, seed) < rarity - 4:
            listed.append((i - after, distance))
            after = i + 1
    return listed


def dithered(distances, seed, rarity=None, listed=None, count=None, stream=None):
    """Return what follows the step in a dithered body; all beside the distances can be a lie."""
    rarity = choose_rarity(distances) if rarity is None else rarity
    listed = list_rare(distances, seed, rarity) if listed is None else listed
    count = len(listed) if count is None else count
    if stream is None:
        stream = encode_decisions(distances, seed, rarity, listed).bytes()
    return struct.pack("<IB", seed, rarity) + varint(count) + stream
