"""A second decoder of uploads of AQUILA-Peak, written from docs/our-methods-peak-format.md alone.

It uses lists of Python integers and explicit Hadamard matrices, and nothing of the package. What a
reader must refuse is an AssertionError.
"""

import math
from dataclasses import dataclass

import numpy as np

MATRIX_ROWS = 64
"""Rows of the largest Hadamard matrix. Longer transforms consist of halves."""


class BitReader:
    """Reads numbers from bytes, lowest bit first."""

    def __init__(self, data: bytes) -> None:
        self.bits = [byte >> place & 1 for byte in data for place in range(8)]
        self.used = 0

    def take(self, width: int) -> int:
        assert self.used + width <= len(self.bits), "too short"
        bits = self.bits[self.used : self.used + width]
        self.used += width
        return sum(bit << place for place, bit in enumerate(bits))

    def count_ones(self) -> int:
        count = 0
        while self.take(1):
            count += 1
        return count

    def take_changes(self, count: int, parameter: int) -> list[int]:
        """Return numbers that are sent as changes in a Rice code."""
        quotients = [self.count_ones() for _ in range(count)]
        number, numbers = 0, []
        for quotient in quotients:
            counted = quotient * 2**parameter + self.take(parameter)
            number += -(counted + 1) // 2 if counted % 2 else counted // 2
            numbers.append(number)
        return numbers


@dataclass(frozen=True)
class Chunk:
    """Coordinates of the model, and how many there are with the filling."""

    start: int
    size: int
    length: int

    @property
    def levels(self) -> int:
        return self.length.bit_length() - 1


def chunks_of(sizes: list[int], longest: int) -> list[Chunk]:
    """Return the chunks of all tensors, the longest ones first."""
    chunks, start = [], 0
    for size in sizes:
        end = start + size
        while start < end:
            coordinates = min(longest, end - start)
            length = 64
            while length < coordinates:
                length *= 2
            chunks.append(Chunk(start, coordinates, length))
            start += coordinates
    return sorted(chunks, key=lambda chunk: -chunk.length)  # keeps the order of equal lengths


def signs(seed: int, round_number: int, stage: int, length: int) -> list[int]:
    sequence = np.random.SeedSequence(seed, spawn_key=(round_number, stage))
    data = np.random.Generator(np.random.PCG64(sequence)).bytes(math.ceil(length / 8))
    return [1 - 2 * (data[i // 8] >> (7 - i % 8) & 1) for i in range(length)]


def hadamard(length: int) -> np.ndarray:
    matrix = np.ones((1, 1))
    while len(matrix) < length:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def transform(z: np.ndarray) -> np.ndarray:
    """Return the product with Sylvester's matrix, without the division."""
    if len(z) <= MATRIX_ROWS:
        return hadamard(len(z)).astype(z.dtype) @ z
    upper, lower = transform(z[: len(z) // 2]), transform(z[len(z) // 2 :])
    return np.concatenate((upper + lower, upper - lower))


def read_blocks(bits: BitReader, lengths: list[int], chunks: list[Chunk]) -> list[list[int]]:
    """Return the peaks of each chunk; chunks with shorter blocks come first."""
    peaks: list[list[int]] = [[] for _ in chunks]
    for q in range(max(chunk.levels for chunk in chunks) + 1):
        for number, chunk in enumerate(chunks):
            if lengths[number] == q <= chunk.levels:
                peaks[number] = [bits.take(q + 1) for _ in range(chunk.length // 2**q)]
    return peaks


def decode(
    data: bytes, scale: float, sizes: list[int], round_number: int, dtype: type = np.float64
) -> np.ndarray:
    """Return the vector of an upload with these bytes and this scale, in the type of the frame."""
    assert 0 < scale * sum(sizes) < 1e38, "scale"
    bits = BitReader(data)
    seed, exponent, a, b = bits.take(8), bits.take(5), bits.take(3), bits.take(3)
    assert 6 <= exponent <= 18, "chunks"
    chunks = chunks_of(sizes, 2**exponent)
    lengths = bits.take_changes(len(chunks), a)
    for q, chunk in zip(lengths, chunks, strict=True):
        assert 0 <= q <= chunk.levels + 1, "block lengths"
    sent = [k for k, chunk in enumerate(chunks) if lengths[k] <= chunk.levels]
    assert sent, "no peaks"
    amplitudes = dict(zip(sent, bits.take_changes(len(sent), b), strict=True))
    assert all(0 <= e <= 127 for e in amplitudes.values()), "amplitudes"
    peaks = read_blocks(bits, lengths, chunks)
    rest = bits.bits[bits.used :]
    assert len(rest) < 8, "too long"
    assert not any(rest), "filling"
    padded, place = sum(chunk.length for chunk in chunks), 0
    drawn = [signs(seed, round_number, stage, padded) for stage in (0, 1)]
    u = np.zeros(sum(sizes), dtype)
    for number, chunk in enumerate(chunks):
        z = np.zeros(chunk.length, dtype)
        for block, peak in enumerate(peaks[number]):
            amplitude = dtype(2 ** (-amplitudes[number] / 2)) * dtype(scale)
            z[block * 2 ** lengths[number] + peak // 2] = -amplitude if peak % 2 else amplitude
        for stage in (1, 0):
            z = transform(z) / dtype(math.sqrt(chunk.length))
            z *= np.array(drawn[stage][place : place + chunk.length], dtype)
        u[chunk.start : chunk.start + chunk.size] = z[: chunk.size]
        place += chunk.length
    return u
