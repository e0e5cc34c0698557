"""Frames built from docs/wire-format.md, in which every field can be made invalid."""

import math
import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate, pairwise

from helpers.frame_reader.dithered import FALL, INITIAL, LOG_OF_MANTISSA, RISE

EMPTY, DENSE, FIXED, CODED, DITHERED, RELAYED = range(6)
PACKED, DIRECT, ZIGZAG, EXCEPTIONS, SIGNED_EXCEPTIONS = range(5)
DOUBLE, REFUSED, FRESH = 1, 2, 4
NUMBERED_NAMES = [
    b"drift", b"share", b"rate", b"boost", b"loss", b"lr_factor", b"report_loss", b"query_loss",
    b"seed", b"size", b"bits", b"levels", b"full", b"age", b"tensors",
]  # fmt: skip
LOWEST_STATE = 2**15
SCALE = 4096


@dataclass(frozen=True)
class RawFrame:
    """A frame; its checksum always matches. None: optional fields are there if they are not 0."""

    magic: int = 0xA0
    version: int = 3
    kind: int = EMPTY
    flags: int = 0
    bits: int = 0
    round: int = 3
    ack: int = 0
    refers_to: int = 0
    dimension: int = 0
    bucket: int = 0
    count: int = 0
    scalars: bytes = b""
    body: bytes = b""
    refers: bool | None = None
    more: bool | None = None

    def bytes(self):
        more = bool(self.ack or self.bucket or self.count) if self.more is None else self.more
        refers = self.refers_to > 0 if self.refers is None else self.refers
        second = self.kind + 8 * self.flags + 64 * refers + 128 * more
        header = bytes([self.magic + self.version, second]) + varint(self.round)
        header += struct.pack("<I", self.refers_to) if refers else b""
        header += varint(self.dimension) if self.kind != EMPTY else b""
        header += bytes([self.bits]) if self.kind in (FIXED, CODED, DITHERED) else b""
        if more:
            header += varint(self.ack) + varint(self.bucket) + bytes([self.count])
        return with_crc(header + self.scalars + self.body)


def with_crc(content):
    return content + struct.pack("<I", zlib.crc32(content))


def scalar(name, value=1.0, field=None, single=None):
    """Return a scalar; `field` replaces the number or length of its name."""
    numbered = name in NUMBERED_NAMES and field is None
    if field is None:
        field = 33 + NUMBERED_NAMES.index(name) if numbered else len(name)
    single = fits_single(value) if single is None else single
    number = struct.pack("<f" if single else "<d", value)
    return bytes([2 * field + single]) + (b"" if numbered else name) + number


def fits_single(value):
    try:
        return struct.unpack("<f", struct.pack("<f", value)) == (value,)
    except OverflowError:
        return False


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
    """Concatenate (value, width) fields, least significant bit first."""
    whole = position = 0
    for value, width in fields:
        whole |= value << position
        position += width
    return whole.to_bytes(-(-position // 8), "little")


def frequency_fields(frequencies):
    order = 0
    for frequency in frequencies:
        high = (frequency >> order) + 1
        zeros = high.bit_length() - 1
        yield 1 << zeros, zeros + 1
        yield high - (1 << zeros), zeros
        yield frequency & (1 << order) - 1, order
        order = max(frequency.bit_length() - 1, 0)


def table(frequencies):
    return bytes([len(frequencies) - 1]) + bit_string(frequency_fields(frequencies))


def frequencies_of(symbols):
    """Return frequencies, at least 1 for every symbol that occurs."""
    counts = Counter(symbols)
    frequencies = [0] * (max(counts) + 1)
    for symbol, count in counts.items():
        frequencies[symbol] = max(SCALE * count // len(symbols), 1)
    frequencies[counts.most_common(1)[0][0]] += SCALE - sum(frequencies)
    return frequencies


@dataclass(frozen=True)
class Stream:
    """The parts of a symbol stream."""

    frequencies: list[int]
    states: list[int]
    words: list[int]

    def bytes(self):
        states = struct.pack(f"<{len(self.states)}I", *self.states)
        words = struct.pack(f"<{len(self.words)}H", *self.words)
        return table(self.frequencies) + varint(len(self.words)) + states + words


def stream(symbols, frequencies=None):
    frequencies = frequencies or frequencies_of(symbols)
    starts = [0, *accumulate(frequencies)]
    states, words = [LOWEST_STATE] * (1 if len(symbols) < 256 else 4), []
    for i in reversed(range(len(symbols))):
        x, frequency, start = states[i % len(states)], frequencies[symbols[i]], starts[symbols[i]]
        if x >= frequency << 19:
            words.append(x % 65536)
            x //= 65536
        states[i % len(states)] = SCALE * (x // frequency) + x % frequency + start
    return Stream(frequencies, states, words[::-1])


def numbers(values):
    symbols, fields = [], []
    for value in values:
        extra = max(value.bit_length() - 3, 0)
        small = value < 16
        symbols.append(value if small else 4 * extra + 4 + (value >> extra))
        fields.append((0, 0) if small else (value & (1 << extra) - 1, extra))
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


def zigzag(centre, zigzags):
    return segment(ZIGZAG, len(zigzags), varint(centre) + numbers(zigzags))


def exceptions(length, centre, gaps=(), values=()):
    return segment(EXCEPTIONS, length, varint(centre) + exception_list(gaps, values))


def signed_exceptions(signs, centre, gaps=(), values=()):
    content = varint(centre) + bit_string((sign, 1) for sign in signs)
    return segment(SIGNED_EXCEPTIONS, len(signs), content + exception_list(gaps, values))


def to_zigzag(code, centre, bits):
    distance = (code - centre) % 2**bits
    return 2 * distance if 2 * distance < 2**bits else 2 * (2**bits - distance) - 1


def gaps_and_values(zigzags):
    """Return the gaps between the numbers that are not 0, and those numbers minus 1."""
    positions = [-1, *(i for i, number in enumerate(zigzags) if number)]
    gaps = [position - before - 1 for before, position in pairwise(positions)]
    return gaps, [zigzags[position] - 1 for position in positions[1:]]


def segment_in_mode(mode, codes, bits, centre):
    """Return a valid segment of these codes in a mode, even if the mode does not suit them."""
    zigzags = [to_zigzag(code, centre, bits) for code in codes]
    if mode == PACKED:
        return packed_segment(codes, bits)
    if mode == DIRECT:
        return direct_segment(codes)
    if mode == ZIGZAG:
        return zigzag(centre, zigzags)
    if mode == EXCEPTIONS:
        return exceptions(len(codes), centre, *gaps_and_values(zigzags))
    signs = [number % 2 for number in zigzags]
    return signed_exceptions(signs, centre, *gaps_and_values([number // 2 for number in zigzags]))


# ---- dithered bodies ----


def mix(x):
    for shift, factor in ((16, 0x21F0AAAD), (15, 0xD35A2D97)):
        x = (x ^ x >> shift) * factor % 2**32
    return x ^ x >> 15


def dither_word(i, seed):
    return mix((mix(i ^ mix(seed)) + seed) % 2**32)


class Blocks:
    """The blocks of a dither, with the coordinates and complements of their ranks."""

    def __init__(self, seed, d):
        self.seed, width = seed, 6 + seed % 16
        while width > 6 and 2 ** (width - 1) >= d:
            width -= 1
        self.d, self.width, self.size = d, width, 2**width

    def complement(self, slot):
        return ((slot % self.size << 32) + dither_word(slot, self.seed)) >> self.width

    def places(self, block):
        """Return the place in its block of each rank."""
        keys = [dither_word(2**32 - 1 - 8 * block - number, self.seed) for number in range(6)]
        return [self.place(rank, keys) for rank in range(self.size)]

    def place(self, rank, keys):
        for key in keys:
            rank = (rank + key) * (2 * (key >> 12) + 1) % self.size
            rank ^= rank >> -(-self.width // 2)
        return rank


def sparsity_of(distances):
    """Return the writer's choice: 8 log2(coordinates per sent coordinate), rounded down."""
    sent = len(distances) - list(distances).count(0)
    return min(int(8 * math.log2(len(distances) / sent)), 255) if sent else 255


class Context:
    """Probability of a 1 as an average, in units of 2^-22."""

    def __init__(self, start=SCALE // 2, seen=0):
        self.average, self.seen = start << 10, seen

    def probability(self):
        return max(self.average >> 6, 1)

    def update(self, bit):
        change = 2 * abs((bit << 22) - self.average) // (2 * self.seen + 3)
        self.average += change if bit else -change
        self.seen = min(self.seen + 1, 510)


class RangeEncoder:
    """A range coder that writes one large integer; its bytes are the stream."""

    def __init__(self):
        self.low, self.range, self.renormalised = 0, 2**32 - 1, 0

    def encode_bit(self, bit, probability=32768):
        bound = (self.range >> 16) * probability
        if bit:
            self.range = bound
        else:
            self.low, self.range = self.low + bound, self.range - bound
        while self.range < 2**24:
            self.low, self.range = self.low << 8, self.range << 8
            self.renormalised += 1

    def adaptive(self, bit, context):
        self.encode_bit(bit, context.probability())
        context.update(bit)

    def number(self, value, contexts):
        """Write a number. 2^32 - 1 and above have no code and become zeros in all contexts."""
        width = (value + 1).bit_length() - 1
        for context in contexts[:width]:
            self.adaptive(0, context)
        if width < len(contexts):
            self.adaptive(1, contexts[width])
            for bit in reversed(range(width)):
                self.encode_bit(value + 1 >> bit & 1)

    @property
    def bytes_read(self):
        """Bytes that a reader consumes, including zero bytes after the end of the stream."""
        return 4 + self.renormalised

    def bytes(self):
        kept_bytes = next(k for k in range(5) if self.rounded_up(k) < self.low + self.range)
        return self.rounded_up(kept_bytes).to_bytes(self.bytes_read, "big").rstrip(b"\0")

    def rounded_up(self, kept_bytes):
        unit = 256 ** (4 - kept_bytes)
        return -(-self.low // unit) * unit


class Scales:
    """The estimates of the mean size, and the contexts that depend on them."""

    def __init__(self, sparsity):
        self.logs = [(256 - sparsity) << 13] * 2  # fast and slow
        self.contexts = [[Context(p, 12) for p in INITIAL] for _ in range(4)]

    def decides(self, size):
        """Return whether a coordinate with this complement is a candidate."""
        return self.log(size) < max(self.logs) + (3 << 15)

    @staticmethod
    def log(size):
        octave = max(size, 1).bit_length() - 1
        return (octave << 16) + (LOG_OF_MANTISSA[(max(size, 1) << 4 >> octave) & 15] << 12)

    def choose(self, size):
        """Return the context of a complement, and its levels."""
        log = self.log(size)
        levels = [min(max((log - own + (9 << 15) - (1 << 14)) >> 15, 0), 20) for own in self.logs]
        trend = min(max((self.logs[0] - self.logs[1] + (3 << 16)) >> 17, 0), 3)
        return self.contexts[trend][levels[1]], levels

    def update(self, levels, sent):
        for k, (level, shift) in enumerate(zip(levels, (1, 5), strict=True)):
            self.move(k, RISE[level] >> shift if sent else -(FALL[level] >> shift))

    def move(self, k, change):
        self.logs[k] = min(max(self.logs[k] + change, 0), 32 << 16)


class DecisionWriter:
    """Writes the decisions of a dithered body block by block."""

    def __init__(self, seed, sparsity, distances):
        self.blocks, self.distances = Blocks(seed, len(distances)), distances
        self.scales, self.encoder = Scales(sparsity), RangeEncoder()
        self.gaps, self.magnitudes = ([Context() for _ in range(32)] for _ in range(2))
        self.lists, self.before = [Context(16, 12), Context(), Context()], 0

    def block(self, number, listed=None):
        """Write a block; `listed` replaces the pairs of a gap and a distance that it lists."""
        start, size = number * self.blocks.size, self.blocks.size
        at = [start + place for place in self.blocks.places(number)]
        ranked = [self.distances[i] if i < len(self.distances) else None for i in at]
        rank, context, self.before = 0, self.lists[self.before], 0
        while (rank := self.candidates(start, ranked, rank)) < size:
            gap, distance = self.next_listed(ranked, rank, listed)
            self.encoder.adaptive(int(distance != 0), context)
            if not distance:
                return
            self.encoder.number(gap, self.gaps)
            self.sent(distance)
            rank += gap
            _, levels = self.scales.choose(self.blocks.complement(start + rank))
            self.scales.move(1, RISE[levels[1]] >> 5)
            rank, context, self.before = rank + 1, self.lists[2], 1

    def candidates(self, start, ranked, rank):
        """Write the decisions from a rank on, and return the first rank that is not decided."""
        for k in range(rank, len(ranked)):
            distance, complement = ranked[k], self.blocks.complement(start + k)
            if distance is None:
                continue
            if not self.scales.decides(complement):
                return k
            context, levels = self.scales.choose(complement)
            self.encoder.adaptive(int(distance != 0), context)
            self.scales.update(levels, distance != 0)
            if distance:
                self.sent(distance)
        return max(rank, len(ranked))

    @staticmethod
    def next_listed(ranked, rank, listed):
        """Return the next gap and distance to list; the distance is 0 if there is none."""
        if listed is not None:
            return listed.pop(0) if listed else (0, 0)
        gap = next((gap for gap, distance in enumerate(ranked[rank:]) if distance), None)
        return (0, 0) if gap is None else (gap, ranked[rank + gap])

    def sent(self, distance):
        self.encoder.encode_bit(int(distance < 0))
        self.encoder.number(abs(distance) - 1, self.magnitudes)


def encode_decisions(distances, seed, sparsity, listed=None):
    """Return the decisions of a dithered body; `listed` replaces the list of its first block."""
    writer = DecisionWriter(seed, sparsity, distances)
    for number in range(-(-len(distances) // writer.blocks.size)):
        writer.block(number, list(listed) if listed and number == 0 else None)
    return writer.encoder


def dithered(distances, seed, sparsity=None, listed=None, stream=None):
    """Return what follows the step in a dithered body; the arguments need not match."""
    sparsity = sparsity_of(distances) if sparsity is None else sparsity
    if stream is None:
        stream = encode_decisions(distances, seed, sparsity, listed).bytes()
    return struct.pack("<IB", seed, sparsity) + stream


# ---- relayed bodies ----


def relayed_reply(weight, frame, length=None):
    """Return a reply of a relayed round; `length` replaces that of the frame."""
    return doubles(weight) + varint(len(frame) if length is None else length) + frame


def relayed_round(base, factor, *replies, count=None):
    """Return a round of a relayed body; `count` replaces the number of its replies."""
    start = struct.pack("<Id", base, factor) + varint(len(replies) if count is None else count)
    return start + b"".join(relayed_reply(*reply) for reply in replies)
