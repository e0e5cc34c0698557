"""A second reader of frames, written from docs/wire-format.md alone: plain, slow, no dependencies.

`python tests/helpers/frame_reader.py FILE` prints what a frame holds.
"""

import math
import re
import struct
import sys
import zlib
from dataclasses import dataclass
from itertools import accumulate

EMPTY, DENSE, FIXED, CODED, DITHERED = range(5)
PACKED, DIRECT, ZIGZAG, EXCEPTIONS, SIGNED_EXCEPTIONS = range(5)
DOUBLE, REFUSED, FRESH = 1, 2, 4
HEADER = struct.Struct("<4s4B5IB")
CHECKSUM = 4
NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{0,31}")
SHARES = 4096
LOWEST_STATE, HIGHEST_STATE = 2**15, 2**31 - 1  # of a state
LIMIT = 2**28  # coordinates of a coded or dithered frame, where the caller does not know how many
BANDS = 32
STARTS = [1, 15, 249, 1011, 2034, 2886, 3438, 3753, 3920, 3973]  # of 4096


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
    dither_seed: int | None  # seed of a dithered frame's lots


def check(condition, message):
    if not condition:
        raise FrameError(message)


def read(frame, dimension=None):
    """Return what a frame holds, of `dimension` coordinates if that is known."""
    check(len(frame) >= HEADER.size + CHECKSUM, "shorter than an envelope")
    header = HEADER.unpack_from(frame)
    magic, version, kind, flags, bits, round_, ack, answers, d, bucket, count = header
    check(magic == b"AQLA" and version == 2, "not a frame of version 2")
    check(zlib.crc32(frame[:-CHECKSUM]) == int.from_bytes(frame[-CHECKSUM:], "little"), "damaged")
    check(kind <= DITHERED, "unknown kind")
    check(flags <= DOUBLE + REFUSED + FRESH, "unknown flags")
    check(not flags & REFUSED or kind == EMPTY, "refused, but with a vector")
    check(dimension is None or kind == EMPTY or d == dimension, "another dimension")
    source = Source(frame[HEADER.size : -CHECKSUM])
    scalars = read_scalars(source, count)
    float_code = "d" if flags & DOUBLE else "f"
    values, low, step, codes, segments, dither_seed = [], [], [], None, [], None
    if kind == EMPTY:
        check(bits == d == bucket == flags & DOUBLE == 0, "empty, but described")
    elif kind == DENSE:
        check(bits == 8 * struct.calcsize(float_code) and bucket == 0, "not how dense is described")
        values = source.floats(d, float_code)
    else:
        check(1 <= bits <= 32, "no width for codes")
        check(bucket < d, "a bucket that is no part of the vector")
        check(kind != DITHERED or bucket == 0, "dithered in buckets")
        check(kind == FIXED or dimension is not None or d <= LIMIT, "more than the limit")
        bucket = bucket or d
        if kind == DITHERED:
            low, step, dither_seed, codes = read_dithered(source, d, bits, float_code)
        else:
            low, step = read_grids(source, -(-d // bucket), bits, float_code)
            codes, segments = READ_CODES[kind](source, d, bits)
        values = on_grids(codes, low, step, bucket, float_code)
    check(source.place == 8 * len(source.data), "bytes behind the body")
    refused, fresh, double = (bool(flags & flag) for flag in (REFUSED, FRESH, DOUBLE))
    return Frame(
        kind, round_, ack - 1, answers, refused, fresh, scalars, double, bits, bucket, values,
        low, step, codes, segments, dither_seed,
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

    def rest(self):
        return self.bytes(len(self.data) - self.place // 8)

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

    def floats(self, n, float_code):
        values = list(
            struct.unpack(f"<{n}{float_code}", self.bytes(n * struct.calcsize(float_code)))
        )
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


def read_grids(source, grids, bits, float_code):
    low, step = source.floats(grids, float_code), source.floats(grids, float_code)
    for one_low, one_step in zip(low, step, strict=True):
        check_grid(one_low, one_step, bits, float_code)
    return low, step


def check_grid(low, step, bits, float_code):
    check(step >= 0, "a grid runs backwards")
    top = on_grid(2**bits - 1, low, step, float_code)
    check(math.isfinite(low) and math.isfinite(top), "an end of a grid is not finite")


def on_grids(codes, low, step, bucket, float_code):
    grids = ((low[i // bucket], step[i // bucket]) for i in range(len(codes)))
    return [on_grid(code, *grid, float_code) for code, grid in zip(codes, grids, strict=True)]


def on_grid(code, low, step, float_code):
    return rounded(rounded(rounded(code, float_code) * step, float_code) + low, float_code)


def rounded(number, float_code):
    """Round to the frame's floats; exact, as float64 has more than twice the digits of float32."""
    try:
        return struct.unpack("<" + float_code, struct.pack("<" + float_code, number))[0]
    except OverflowError:
        return math.inf


def read_fixed(source, d, bits):
    return read_packed(source, d, bits), []


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
        check(mode <= SIGNED_EXCEPTIONS, "unknown mode")
        if mode == PACKED:
            codes += read_packed(source, n, bits)
        elif mode == DIRECT:
            check(bits <= 8, "direct codes of more than 8 bits")
            codes += read_symbols(source, n, 2**bits)
        else:
            centre = source.varint()
            check(centre < 2**bits, "the centre is no code")
            zigzags = READ_ZIGZAG[mode](source, n)
            check(max(zigzags) < 2**bits, "a fold is no code")
            codes += [unzigzag(centre, zigzag) % 2**bits for zigzag in zigzags]
    return codes, segments


def unzigzag(centre, zigzag):
    return centre - (zigzag + 1) // 2 if zigzag % 2 else centre + zigzag // 2


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
    check(all(LOWEST_STATE <= x <= HIGHEST_STATE for x in states), "a state out of range")
    words = iter(struct.unpack(f"<{word_count}H", source.bytes(2 * word_count)))
    symbols = []
    for i in range(n):
        x = states[i % len(states)]
        symbol = owner[x % SHARES]
        x = shares[symbol] * (x // SHARES) + x % SHARES - starts[symbol]
        if x < LOWEST_STATE:
            word = next(words, None)
            check(word is not None, "a word is missing")
            x = 65536 * x + word
        states[i % len(states)] = x
        symbols.append(symbol)
    check(all(x == LOWEST_STATE for x in states), "a state does not end where it must")
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


def read_dithered(source, d, bits, float_code):
    """Return low, step, the seed of the lots and the codes."""
    check(bits >= 2, "dithered codes of one bit")
    centre = 2 ** (bits - 1) - 1
    (step,) = source.floats(1, float_code)
    low = -rounded(rounded(centre, float_code) * step, float_code)
    check_grid(low, step, bits, float_code)
    seed, rarity, list_count = source.bits(32), source.byte(), source.varint()
    check(rarity <= 31, "a rarity beyond 31")
    check(list_count <= d, "more listed than there are coordinates")
    codes = [
        centre + n for n in DitheredStream(source.rest(), seed, rarity).distances(d, list_count)
    ]
    check(min(codes) >= 0 and max(codes) < 2**bits, "a winner beyond its bits")
    return [low], [step], seed, codes


class Context:
    """How likely a decision is to be 1, learned from those before it."""

    def __init__(self, start=2**21, seen=0):
        self.fast = self.slow = start  # of 2^22
        self.seen = seen

    @property
    def chance(self):
        return max(1, (self.fast + self.slow) // 128)

    def learn(self, bit):
        self.fast = self._updated(self.fast, bit, min(self.seen, 30))
        self.slow = self._updated(self.slow, bit, self.seen)
        self.seen = min(self.seen + 1, 254)

    @staticmethod
    def _updated(chance, bit, seen):
        k = 2 * seen + 3
        return chance + 2 * (2**22 - chance) // k if bit else chance - 2 * chance // k


class DitheredStream:
    """The stream of a dithered body: who has won, and what."""

    def __init__(self, stream, seed, rarity):
        self.stream, self.taken = stream, 0
        self.seed, self.first_band = seed, max(0, rarity - 4)
        self.range, self.value = 2**32 - 1, 0
        for _ in range(4):
            self.value = 256 * self.value + self.byte()
        check(self.value < self.range, "a stream that no writer starts like this")
        self.gaps, self.magnitudes = ([Context() for _ in range(32)] for _ in range(2))
        self.sent_contexts = {
            band: Context(1024 * STARTS[min(band - rarity, 5) + 4], 4)
            for band in range(self.first_band, BANDS)
        }

    def distances(self, d, list_count):
        """Return how far each code is from the centre."""
        distances, place = [0] * d, -1
        for _ in range(list_count):
            place += self.number(self.gaps) + 1
            check(place < d, "a listed coordinate beyond the end")
            check(self.band(place) < self.first_band, "listed, though it has a decision")
            distances[place] = self.distance()
        for i in range(d):
            band = self.band(i)
            if band >= self.first_band and self.decide_adaptive(self.sent_contexts[band]):
                distances[i] = self.distance()
        check(self.taken >= len(self.stream), "bytes are left in the stream")
        check(not self.stream.endswith(b"\0"), "a zero byte ends the stream")
        return distances

    def band(self, i):
        word = mix_bits(mix_bits(i ^ mix_bits(self.seed)) + self.seed & 2**32 - 1)
        return min(32 - (word ^ 2**32 - 1).bit_length(), BANDS - 1)

    def distance(self):
        negative = self.decide()
        magnitude = self.number(self.magnitudes) + 1
        return -magnitude if negative else magnitude

    def number(self, contexts):
        width = 0
        while not self.decide_adaptive(contexts[width]):
            width += 1
            check(width < 32, "a number of more than 32 bits")
        number = 1
        for _ in range(width):
            number = 2 * number + self.decide()
        return number - 1

    def decide_adaptive(self, context):
        bit = self.decide(context.chance)
        context.learn(bit)
        return bit

    def decide(self, chance=32768):
        bound = (self.range >> 16) * chance
        bit = int(self.value < bound)
        if bit:
            self.range = bound
        else:
            self.range -= bound
            self.value -= bound
        while self.range < 2**24:
            self.range *= 256
            self.value = 256 * self.value + self.byte()
        return bit

    def byte(self):
        self.taken += 1
        return self.stream[self.taken - 1] if self.taken <= len(self.stream) else 0


def mix_bits(x):
    x ^= x >> 16
    x = x * 0x21F0AAAD & 2**32 - 1
    x ^= x >> 15
    x = x * 0xD35A2D97 & 2**32 - 1
    return x ^ x >> 15


READ_CODES = {FIXED: read_fixed, CODED: read_segments}
READ_ZIGZAG = {ZIGZAG: read_numbers, EXCEPTIONS: read_exceptions, SIGNED_EXCEPTIONS: read_signed}


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        print(read(file.read()))
