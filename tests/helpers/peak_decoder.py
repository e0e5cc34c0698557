"""A second decoder of uploads of AQUILA-Peak, written from docs/our-methods-peak-format.md alone.

It uses Python integers and explicit Hadamard matrices, and nothing of the package.
"""

import math

import numpy as np


class BitReader:
    """Reads numbers from bytes, lowest bit first."""

    def __init__(self, data: bytes) -> None:
        self.number, self.left = int.from_bytes(data, "little"), 8 * len(data)

    def take(self, width: int) -> int:
        value = self.number & ((1 << width) - 1)
        self.number >>= width
        self.left -= width
        return value

    def count_ones(self) -> int:
        count = 0
        while self.take(1):
            count += 1
        return count


def group_lengths(sizes: list[int], block: int) -> list[int]:
    lengths = []
    for size in filter(None, sizes):
        count = max(1, size // (8 * block))
        lengths += [size // count] * (count - 1)
        lengths.append(size - size // count * (count - 1))
    return lengths


def digits_per_word(base: int) -> tuple[int, int]:
    """Return the digits and the bits of a word, by comparing fractions exactly."""
    best = (1, (base - 1).bit_length())
    for count in range(2, 63):
        width = (base**count - 1).bit_length()
        if width <= 62 and width * best[0] < best[1] * count:
            best = (count, width)
    return best


def read_peaks(bits: BitReader, count: int, base: int) -> list[int]:
    per_word, width = digits_per_word(base)
    peaks: list[int] = []
    while len(peaks) < count:
        word = bits.take(width)
        for _ in range(per_word):
            peaks.append(word % base)
            word //= base
    return peaks[:count]


def signs(seed: int, round_number: int, transform: int, length: int) -> np.ndarray:
    sequence = np.random.SeedSequence(seed, spawn_key=(round_number, transform))
    data = np.random.Generator(np.random.PCG64(sequence)).bytes(math.ceil(length / 8))
    return np.array([1 - 2 * (data[i // 8] >> (7 - i % 8) & 1) for i in range(length)])


def hadamard(length: int) -> np.ndarray:
    matrix = np.ones((1, 1))
    while len(matrix) < length:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / math.sqrt(length)


def decode(data: bytes, scale: float, sizes: list[int], round_number: int) -> np.ndarray:
    """Return the vector of an upload with these bytes and this scale."""
    dimension, bits = sum(sizes), BitReader(data)
    seed, block = bits.take(16), bits.take(16)
    level, weights = 0, []
    for length in group_lengths(sizes, block):
        count = bits.count_ones()
        level += -(count + 1) // 2 if count % 2 else count // 2
        weights += [2 ** (-level / 4)] * length
    u = np.zeros(dimension)
    for number, peak in enumerate(read_peaks(bits, math.ceil(dimension / block), 2 * block)):
        u[number * block + peak // 2] = -scale if peak % 2 else scale
    assert bits.left < 8
    assert not bits.number
    length = 1 << dimension.bit_length() - 1
    matrix = hadamard(length)
    if length < dimension:
        u[-length:] = matrix @ u[-length:] * signs(seed, round_number, 1, length)
    u[:length] = matrix @ u[:length] * signs(seed, round_number, 0, length)
    side = math.isqrt(dimension)
    u[: side**2] = u[: side**2].reshape(side, side).T.reshape(-1)
    return u * weights
