"""Streams of dithered bodies: docs/wire-format-dithered.md."""

from helpers.frame_reader.source import check

BANDS = 32
INITIAL = [1, 15, 249, 1011, 2034, 2886, 3438, 3753, 3920, 3973]  # of 4096


class Context:
    """Probability that a decision is 1, as a fast and a slow average of past decisions."""

    def __init__(self, initial=2**21, seen=0):
        self.fast = self.slow = initial  # of 2^22
        self.seen = seen

    @property
    def probability(self):
        return max(1, (self.fast + self.slow) // 128)

    def update(self, bit):
        self.fast = self._moved(self.fast, bit, min(self.seen, 30))
        self.slow = self._moved(self.slow, bit, self.seen)
        self.seen = min(self.seen + 1, 254)

    @staticmethod
    def _moved(average, bit, seen):
        k = 2 * seen + 3
        return average + 2 * (2**22 - average) // k if bit else average - 2 * average // k


class DitheredStream:
    """The stream of a dithered body: which coordinates are sent, and their values."""

    def __init__(self, stream, seed, sparsity):
        self.stream, self.consumed = stream, 0
        self.seed, self.lowest_band = seed, max(0, sparsity - 4)
        self.range, self.value = 2**32 - 1, 0
        for _ in range(4):
            self.value = 256 * self.value + self.byte()
        check(self.value < self.range, "the stream starts with an invalid value")
        self.gaps, self.magnitudes = ([Context() for _ in range(32)] for _ in range(2))
        self.sent = {
            band: Context(1024 * INITIAL[min(band - sparsity, 5) + 4], 4)
            for band in range(self.lowest_band, BANDS)
        }

    def distances(self, d, listed):
        """Return the distance of each code from the centre."""
        distances, position = [0] * d, -1
        for _ in range(listed):
            position += self.number(self.gaps) + 1
            check(position < d, "a listed coordinate after the end of the vector")
            check(self.band(position) < self.lowest_band, "a listed coordinate is a candidate")
            distances[position] = self.distance()
        for i in range(d):
            band = self.band(i)
            if band >= self.lowest_band and self.decide_adaptive(self.sent[band]):
                distances[i] = self.distance()
        check(self.consumed >= len(self.stream), "the stream has bytes left")
        check(not self.stream.endswith(b"\0"), "the stream ends with a zero byte")
        return distances

    def band(self, i):
        word = mix(mix(i ^ mix(self.seed)) + self.seed & 2**32 - 1)
        return min(32 - (word ^ 2**32 - 1).bit_length(), BANDS - 1)

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


def mix(x):
    x ^= x >> 16
    x = x * 0x21F0AAAD & 2**32 - 1
    x ^= x >> 15
    x = x * 0xD35A2D97 & 2**32 - 1
    return x ^ x >> 15
