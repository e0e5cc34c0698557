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
LARGEST = 32 * 2**16  # of a logarithm
ROUNDS, KEYS_PER_BLOCK = 6, 8


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


class Dither:
    """The dither of a seed: complements of ranks, and the coordinates that have these ranks."""

    def __init__(self, seed, d):
        self.seed = seed
        self.block_bits = max(6, min(6 + seed % 16, (d - 1).bit_length()))
        self.block_size = 2**self.block_bits

    def complement(self, slot):
        rank, fraction = slot % self.block_size, self.word(slot) >> self.block_bits
        return (rank << 32 - self.block_bits) + fraction

    def coordinate(self, slot):
        block, place = divmod(slot, self.block_size)
        for number in range(ROUNDS):
            key = self.word(2**32 - 1 - (KEYS_PER_BLOCK * block + number))
            place = (place + key) * (key >> 11 | 1) % self.block_size
            place ^= place >> (self.block_bits + 1) // 2
        return block * self.block_size + place

    def word(self, i):
        return mix(mix(i ^ mix(self.seed)) + self.seed & 2**32 - 1)


class DitheredStream:
    """The stream of a dithered body: which coordinates are sent, and their values."""

    def __init__(self, stream, seed, sparsity, d):
        self.stream, self.consumed, self.d, self.dither = stream, 0, d, Dither(seed, d)
        self.range, self.value = 2**32 - 1, 0
        for _ in range(4):
            self.value = 256 * self.value + self.byte()
        check(self.value < self.range, "the stream starts with an invalid value")
        self.gaps, self.magnitudes = ([Context() for _ in range(32)] for _ in range(2))
        initial = LARGEST - 2**13 * sparsity
        self.fast, self.slow = Estimate(initial, 1), Estimate(initial, 5)
        self.sent = [[Context(1024 * initial, 12) for initial in INITIAL] for _ in range(4)]
        self.listed = [Context(2**14, 12), Context(), Context()]
        self.listed_before = False

    def distances(self):
        """Return the distance of each code from the centre."""
        distances = [0] * self.d
        for start in range(0, self.d, self.dither.block_size):
            self.block(distances, range(start, start + self.dither.block_size))
        check(self.consumed >= len(self.stream), "the stream has bytes left")
        check(not self.stream.endswith(b"\0"), "the stream ends with a zero byte")
        return distances

    def block(self, distances, slots):
        slot, context = slots.start, self.listed[self.listed_before]
        self.listed_before = False
        while True:
            slot = self.candidates(distances, slot, slots.stop)
            if slot == slots.stop or not self.decide_adaptive(context):
                return
            slot += self.number(self.gaps)
            check(slot in slots, "a listed rank after the end of its block")
            self.send(distances, slot)
            self.slow.update(self.slow.level(logarithm(self.dither.complement(slot))), 1)
            slot, self.listed_before, context = slot + 1, True, self.listed[2]

    def candidates(self, distances, slot, stop):
        """Read the decisions on candidates; return the first slot after them."""
        for candidate in range(slot, stop):
            if self.dither.coordinate(candidate) >= len(distances):
                continue
            log = logarithm(self.dither.complement(candidate))
            if log - max(self.fast.log, self.slow.log) >= 98304:
                return candidate
            if self.is_sent(log):
                self.send(distances, candidate)
        return stop

    def is_sent(self, log):
        trend = min(max((self.fast.log - self.slow.log + 3 * 2**16) // 2**17, 0), 3)
        fast, slow = self.fast.level(log), self.slow.level(log)
        bit = self.decide_adaptive(self.sent[trend][slow])
        self.fast.update(fast, bit)
        self.slow.update(slow, bit)
        return bit

    def send(self, distances, slot):
        distance, coordinate = self.distance(), self.dither.coordinate(slot)
        check(coordinate < len(distances), "a coordinate after the last one is sent")
        distances[coordinate] = distance

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
