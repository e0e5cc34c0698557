"""Streams of dithered bodies: docs/wire-format-dithered.md."""

from helpers.frame_reader.source import check

INITIAL = [
    3848, 3750, 3615, 3432, 3190, 2876, 2484, 2020, 1507, 996, 554, 242, 75, 14, *[1] * 7,
]  # of 4096  # fmt: skip
RISE = [
    5909, 8357, 11819, 16714, 23637, 33428, 47274, 66856, 94548, 133712, 189097, 267423,
    *[283645] * 9,
]  # fmt: skip
FALL = [
    91625, 90432, 88762, 86438, 83222, 78817, 72873, 65028, 55025, 42949, 29597, 16799, 7056, 1875,
    254, 13, *[0] * 5,
]  # fmt: skip
LOG_OF_MANTISSA = [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 13, 14, 15, 16]
BLOCK = 1024
LARGEST = 32 * 2**16  # of a logarithm


class Context:
    """Probability that a decision is 1, as an average of past decisions."""

    def __init__(self, initial=2**21, seen=0):
        self.average, self.seen = initial, seen  # of 2^22

    @property
    def probability(self):
        return max(1, self.average // 64)

    def update(self, bit):
        k = 2 * self.seen + 3
        self.average += 2 * (2**22 - self.average) // k if bit else -(2 * self.average // k)
        self.seen = min(self.seen + 1, 510)


class Estimate:
    """Logarithm of the mean size near a coordinate, in units of 2^-16."""

    def __init__(self, log, shift):
        self.log, self.shift = log, shift

    def level(self, log):
        return min(max((log - self.log + 4 * 2**16 + 2**14) // 2**15, 0), 20)

    def update(self, level, bit):
        change = RISE[level] >> self.shift if bit else -(FALL[level] >> self.shift)
        self.log = min(max(self.log + change, 0), LARGEST)


class DitheredStream:
    """The stream of a dithered body: which coordinates are sent, and their values."""

    def __init__(self, stream, seed, sparsity):
        self.stream, self.consumed, self.seed = stream, 0, seed
        self.range, self.value = 2**32 - 1, 0
        for _ in range(4):
            self.value = 256 * self.value + self.byte()
        check(self.value < self.range, "the stream starts with an invalid value")
        self.gaps, self.magnitudes = ([Context() for _ in range(32)] for _ in range(2))
        self.initial = LARGEST - 2**13 * sparsity
        self.fast, self.slow = Estimate(self.initial, 1), Estimate(self.initial, 5)
        self.sent = [[Context(1024 * initial, 12) for initial in INITIAL] for _ in range(4)]
        self.listed = [Context(2**14, 12), Context(), Context()]
        self.listed_before = False

    def distances(self, d):
        """Return the distance of each code from the centre."""
        distances = [0] * d
        for start in range(0, d, BLOCK):
            self.block(distances, range(start, min(start + BLOCK, d)))
        check(self.consumed >= len(self.stream), "the stream has bytes left")
        check(not self.stream.endswith(b"\0"), "the stream ends with a zero byte")
        return distances

    def block(self, distances, block):
        largest = max(self.initial, self.fast.log, self.slow.log)
        limit = 2 ** (largest // 2**16 + 5)
        position, context = block.start - 1, self.listed[self.listed_before]
        self.listed_before = False
        while self.decide_adaptive(context):
            position += self.number(self.gaps) + 1
            check(position in block, "a listed coordinate after the end of its block")
            check(self.complement(position) >= limit, "a listed coordinate is a candidate")
            distances[position] = self.distance()
            self.listed_before, context = True, self.listed[2]
        for i in block:
            complement = self.complement(i)
            if complement < limit and self.is_sent(complement):
                distances[i] = self.distance()

    def is_sent(self, complement):
        log, mean = logarithm(complement), self.slow.log
        trend = min(max((self.fast.log - mean + 3 * 2**16) // 2**17, 0), 3)
        fast, slow = self.fast.level(log), self.slow.level(log)
        bit = self.decide_adaptive(self.sent[trend][slow])
        self.fast.update(fast, bit)
        self.slow.update(slow, bit)
        return bit

    def complement(self, i):
        return mix(mix(i ^ mix(self.seed)) + self.seed & 2**32 - 1) ^ 2**32 - 1

    def distance(self):
        negative = self.decide()
        magnitude = self.number(self.magnitudes) + 1
        return -magnitude if negative else magnitude

    def number(self, contexts):
        length = 0
        while not self.decide_adaptive(contexts[length]):
            length += 1
            check(length < 32, "a number has more than 32 bits")
        number = 1
        for _ in range(length):
            number = 2 * number + self.decide()
        return number - 1

    def decide_adaptive(self, context):
        bit = self.decide(context.probability)
        context.update(bit)
        return bit

    def decide(self, probability=32768):
        bound = (self.range >> 16) * probability
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
        self.consumed += 1
        return self.stream[self.consumed - 1] if self.consumed <= len(self.stream) else 0


def logarithm(complement):
    """Return log2 of a complement in units of 2^-16; 0 counts as 1."""
    octave = max(complement, 1).bit_length() - 1
    mantissa = (max(complement, 1) << 31 - octave) >> 27 & 15
    return 2**16 * octave + 2**12 * LOG_OF_MANTISSA[mantissa]


def mix(x):
    x ^= x >> 16
    x = x * 0x21F0AAAD & 2**32 - 1
    x ^= x >> 15
    x = x * 0xD35A2D97 & 2**32 - 1
    return x ^ x >> 15
