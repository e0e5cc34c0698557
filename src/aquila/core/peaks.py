"""The peak quantizer: an upload has only the largest coordinate of each block after a rotation.

A vector v is cut into chunks, and each chunk is rotated on its own. After a random rotation R the
coordinates of a chunk look like a normal sample, unless only a few were nonzero. An upload has the
position of the largest magnitude of each block of n coordinates, the *peak*, and its sign: 1 + log2
n bits. The decoded chunk is A Rᵀ c, where c is ±1 at the peaks and 0 elsewhere. With
A = ||v||² / ⟨R v, c⟩ it equals v on average if R is a uniform rotation (EDEN, arXiv 2108.08842,
Theorem 2.1). Its squared error is ω ||v||² with ω close to n / a² - 1, where a is the expected
largest magnitude of n normal numbers.

Parts of a model differ in the size of their coordinates, so each chunk has blocks of its own
length. With the root mean square r of a chunk, the share that it sends grows as r^1.5. The power 1
has the least error, but losses are steeper where gradients are larger, so noise does more harm
there. docs/our-methods-peak.md says how 1.5 was chosen.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from aquila.core.bit_strings import (
    Integers,
    best_rice_parameter,
    to_bytes,
    write_fixed,
    write_rice,
    zigzag,
)
from aquila.core.chunks import MIN_BITS, Chunks
from aquila.core.packet import Codes
from aquila.core.random import Key
from aquila.core.rotated import Basis, RotatedVector
from aquila.core.rotation import chunk_squares, rotate_chunks
from aquila.core.tensors import Shapes
from aquila.core.vector import Vector, relative_norm, squared_norm

MAX_BLOCK = 2**15
"""Coordinates of the longest block that an order can ask for."""
CHUNK_BLOCKS = 8
"""Chunks have the coordinates of this many blocks or more, so that their numbers cost little."""
CHUNK_BITS = range(MIN_BITS, 19)
"""Possible logarithms to base 2 of the length of a chunk."""
RATE_POWER = 1.5
"""The share that a chunk sends grows as this power of the rms of its coordinates."""
EXPONENTS = 128
"""Amplitudes are the largest one times 2**(-e / 2), with a whole number e below this."""
SEED_BITS, SIZE_BITS, RICE_BITS = 8, 5, 3
"""Bits of the numbers that an upload begins with."""
BYTE_BITS = 8
MIN_EXPONENT = -100
"""Exponent of the smallest unit of a vector. Its inverse must be a float, too."""
SEARCH_STEPS = 40
"""Halvings of an interval, after which no chunk changes its rate."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PeakUpload:
    """A quantized vector: the rates and amplitudes of its chunks, and the peaks of their blocks.

    Attributes:
        block_bits: Per chunk the logarithm to base 2 of the length of its blocks. One more than
            that of the chunk's own length: it has no peaks.
        exponents: Per chunk with peaks its exponent e: the amplitude is S 2**(-e / 2).
        peaks: Per block 2 × position of the peak, plus 1 if it is negative. Chunks with the
            shortest blocks come first.
        scale: S, one float.
        basis: The rotation of the chunks.
    """

    block_bits: Integers
    exponents: Integers
    peaks: Integers
    scale: Vector
    basis: Basis

    @property
    def dimension(self) -> int:
        """Number of coordinates of the model."""
        return self.chunks.dimension

    @property
    def bits(self) -> int:
        """Bits per coordinate, rounded up."""
        return 1

    @property
    def chunks(self) -> Chunks:
        """The chunks of the model."""
        return self.basis.chunks

    @property
    def basis_number(self) -> int:
        """Number of the rotation. Uploads with the same one are added one after the other."""
        return self.basis.seed | self.basis.chunk_bits << SEED_BITS

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(one.nbytes for one in (self.block_bits, self.exponents, self.peaks))

    def decode(self) -> Vector:
        """Return the vector both sides agree on."""
        return self.decode_sparse().to_dense()

    def decode_sparse(self) -> RotatedVector:
        """Return the peaks as numbers in the rotated basis."""
        chunks, exponents = self.chunks, np.zeros(len(self.block_bits), np.int64)
        exponents[self._with_peaks()] = self.exponents
        positions, of_peaks = [], []
        for bits, chosen, peaks in self._by_rate():
            counts = 1 << (chunks.sizes[chosen] - bits)
            block_in_chunk = np.arange(len(peaks)) - np.repeat(np.cumsum(counts) - counts, counts)
            starts = np.repeat(chunks.starts[chosen], counts) + (block_in_chunk << bits)
            positions.append(starts + peaks // 2)
            of_peaks.append(np.repeat(exponents[chosen], counts))
        device = self.scale.device
        amplitudes = torch.from_numpy(FACTORS[np.concatenate(of_peaks)]).to(self.scale)
        amplitudes.mul_(self.scale)
        negative = torch.from_numpy(self.peaks % 2 == 1).to(device)
        values = torch.where(negative, -amplitudes, amplitudes)
        return RotatedVector(
            torch.from_numpy(np.concatenate(positions)).to(device), values, self.basis
        )

    def squared_norm(self) -> float:
        """Return the squared norm, with that of the filling of chunks."""
        sent = self._with_peaks()
        counts = 1 << (self.chunks.sizes - self.block_bits)[sent]
        return float(self.scale) ** 2 * float((counts * FACTORS[self.exponents] ** 2).sum())

    def to_codes(self) -> Codes:
        """Return the bytes that a frame carries."""
        numbers = [zigzag(np.diff(one, prepend=0)) for one in (self.block_bits, self.exponents)]
        parameters = [best_rice_parameter(one, 2**RICE_BITS) for one in numbers]
        parts = [
            write_fixed(np.array([self.basis.seed]), SEED_BITS),
            write_fixed(np.array([self.basis.chunk_bits]), SIZE_BITS),
            write_fixed(np.array(parameters), RICE_BITS),
            *map(write_rice, numbers, parameters),
            *(write_fixed(peaks, bits + 1) for bits, _, peaks in self._by_rate()),
        ]
        codes = torch.from_numpy(to_bytes(np.concatenate(parts)))
        low = torch.zeros_like(self.scale)
        return Codes(codes.to(low.device), BYTE_BITS, low, self.scale, codes.numel())

    def _with_peaks(self) -> NDArray[np.bool_]:
        return self.block_bits <= self.chunks.sizes

    def _by_rate(self) -> Iterator[tuple[int, Integers, Integers]]:
        """Yield each length of blocks in bits, the chunks that have it, and their peaks."""
        start = 0
        for bits, chosen, count in by_rate(self.block_bits, self.chunks):
            yield bits, chosen, self.peaks[start : start + count]
            start += count


FACTORS = np.array([2.0 ** (-exponent / 2) for exponent in range(EXPONENTS + 1)])
"""Amplitudes by exponent, relative to the largest one."""


def by_rate(block_bits: Integers, chunks: Chunks) -> Iterator[tuple[int, Integers, int]]:
    """Yield each length of blocks in bits, the chunks that have it, and the number of blocks."""
    with_peaks = block_bits <= chunks.sizes
    for bits in np.unique(block_bits[with_peaks]).tolist():
        chosen = np.flatnonzero(with_peaks & (block_bits == bits))
        yield bits, chosen, int((1 << (chunks.sizes[chosen] - bits)).sum())


def chunk_bits_of(block: int) -> int:
    """Return the logarithm to base 2 of the length of chunks, for blocks of this mean length."""
    bits = (CHUNK_BLOCKS * block - 1).bit_length()
    return min(max(bits, CHUNK_BITS[0]), CHUNK_BITS[-1])


def quantize_peaks(
    v: Vector, shapes: Shapes, block: int, key: Key, round_number: int
) -> tuple[PeakUpload, float] | None:
    """Quantize a vector; return the upload and its relative error, None for a zero vector.

    The upload takes about as many bytes as blocks of this length everywhere. Raises ValueError if
    the vector is not finite.
    """
    generator = key.numpy()
    seed = int(generator.integers(2**SEED_BITS))
    basis = Basis(shapes, chunk_bits_of(block), seed, round_number)
    chunks = basis.chunks
    norm = math.sqrt(squared_norm(v))
    if not math.isfinite(norm):
        raise ValueError("a vector to quantize is not finite, or its norm is too large")
    if not norm:
        return None
    # a power of two keeps all digits, and sums of the rotation can neither overflow nor vanish
    unit = 2.0 ** max(MIN_EXPONENT, math.frexp(norm)[1])
    rotated = rotate_chunks(v, chunks, basis.key, 1 / unit)
    squares = chunk_squares(rotated, chunks).double().cpu().numpy()
    if not squares.any():  # they are too small for floats
        return None
    budget = -(-chunks.padded_size // block) * math.log2(2 * block)
    block_bits = choose_rates(squares, chunks.sizes, budget)
    peaks, sums = _find_peaks(rotated, chunks, block_bits)
    sent = squares > 0
    amplitudes = squares[sent] / sums[sent]
    scale = v.new_full((1,), min(unit * amplitudes.max(), torch.finfo(v.dtype).max))
    if not scale:  # too small for a float
        return None
    exponents = _round_amplitudes(amplitudes / (float(scale) / unit), generator)
    upload = PeakUpload(block_bits, exponents, peaks, scale, basis)
    rounded = FACTORS[exponents] * float(scale) / unit
    counts = 1 << (chunks.sizes - block_bits)[sent]
    errors = squares[sent] + counts * rounded**2 - 2 * rounded * sums[sent]
    return upload, relative_norm(max(0.0, float(errors.sum())), float(squares.sum()))


def choose_rates(squares: Numbers, sizes: Integers, budget: float) -> Integers:
    """Return the logarithm to base 2 of the length of the blocks of each chunk.

    A chunk with the rms r has blocks of T / r**1.5 coordinates, rounded to a power of two from 1 to
    the length of the chunk. T is such that the bits of the peaks are closest to the budget. A zero
    chunk gets one more than the logarithm of its own length.

    Args:
        squares: Squared norms of the chunks.
        sizes: Logarithms to base 2 of the lengths of the chunks.
        budget: Bits of all peaks.
    """
    sent = squares > 0
    lengths = sizes[sent]
    rms = np.log2(squares[sent]) / 2 - lengths / 2

    def rates(threshold: float) -> Integers:
        return np.clip(np.rint(threshold - RATE_POWER * rms), 0, lengths).astype(np.int64)

    def cost(bits: Integers) -> float:
        return float(((1 << (lengths - bits)) * (bits + 1)).sum())

    low, high = RATE_POWER * rms.min() - 1, RATE_POWER * rms.max() + sizes.max() + 1
    for _ in range(SEARCH_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if cost(rates(middle)) <= budget else (middle, high)
    chosen = sizes + 1
    chosen[sent] = min(rates(low), rates(high), key=lambda bits: abs(cost(bits) - budget))
    return chosen


def expected_error(block: int) -> float:
    """Return ω, the expected squared error of blocks of this length relative to ||v||²."""
    return block / expected_peak(block) ** 2 - 1


@cache
def expected_peak(block: int) -> float:
    """Return the expected largest magnitude of this many standard normal numbers."""
    step = 1e-3
    largest = [1 - math.erf(x * step / math.sqrt(2)) ** block for x in range(1, 10_000)]
    return step * (0.5 + sum(largest))


def _find_peaks(rotated: Vector, chunks: Chunks, block_bits: Integers) -> tuple[Integers, Numbers]:
    """Return the peaks as an upload has them, and the sum of their magnitudes per chunk."""
    sums, peaks = np.zeros(len(block_bits)), []
    firsts = np.cumsum([0, *(run.count for run in chunks.runs)])
    for bits, chosen, _ in by_rate(block_bits, chunks):
        for run, first in zip(chunks.runs, firsts[:-1], strict=True):
            of_run = chosen[(chosen >= first) & (chosen < first + run.count)]
            if not len(of_run):
                continue
            rows = run.rows(rotated)
            if len(of_run) < run.count:
                rows = rows[torch.from_numpy(of_run - first).to(rows.device)]
            blocks = rows.reshape(-1, 1 << bits)
            largest, positions = blocks.abs().max(1)
            negative = blocks.gather(1, positions[:, None]).squeeze(1) < 0
            peaks.append((2 * positions + negative).cpu().numpy())
            # summed by NumPy, because the order of torch's sums depends on the hardware
            magnitudes = largest.cpu().numpy().astype(np.float64)
            sums[of_run] = magnitudes.reshape(len(of_run), -1).sum(1)
    return np.concatenate(peaks), sums


def _round_amplitudes(amplitudes: Numbers, generator: np.random.Generator) -> Integers:
    """Return exponents of amplitudes relative to the largest one, on average without an error."""
    floors = np.clip(np.floor(-2 * np.log2(amplitudes)), 0, EXPONENTS - 1).astype(np.int64)
    above, below = FACTORS[floors], FACTORS[floors + 1]
    up = generator.random(len(floors)) * (above - below) < amplitudes - below
    exponents: Integers = np.minimum(np.where(up, floors, floors + 1), EXPONENTS - 1)
    return exponents
