"""Reads uploads of the peak quantizer. docs/our-methods-peak-format.md specifies them."""

from dataclasses import dataclass

import numpy as np

from aquila.core.bit_strings import (
    Bits,
    Integers,
    from_bytes,
    from_zigzag,
    read_fixed,
    read_rice,
)
from aquila.core.chunks import Chunks, chunks_of
from aquila.core.envelope import require
from aquila.core.packet import Packet
from aquila.core.peaks import (
    BYTE_BITS,
    CHUNK_BITS,
    EXPONENTS,
    RICE_BITS,
    SEED_BITS,
    SIZE_BITS,
    PeakUpload,
    by_rate,
)
from aquila.core.rotated import Basis
from aquila.core.tensor_grid import codes_of
from aquila.core.tensors import Shapes, total_size

MAX_PEAK_NORM = 1e38
"""Limit of S d. No sum of the transforms that decode an upload can be larger."""
START = SEED_BITS + SIZE_BITS + 2 * RICE_BITS
"""Bits before the numbers of the chunks."""
MAX_CHUNK_NUMBERS = 16
"""Bits of the two numbers of a chunk, at most, with the best parameters of their codes."""


@dataclass(frozen=True)
class PeakReader:
    """Reads uploads of `quantize_peaks`."""

    def dimensions(self, shapes: Shapes) -> range:
        """Return the possible numbers of bytes, whatever the rates and the length of the chunks.

        There are most chunks if they are short. A coordinate takes at most one bit, and the filling
        of longer chunks less than doubles the coordinates.
        """
        shortest = chunks_of(shapes, CHUNK_BITS[0])
        bits = START + MAX_CHUNK_NUMBERS * len(shortest.sizes) + 2 * shortest.padded_size
        return range(3, bits // BYTE_BITS + 2)

    def read(self, reply: Packet, shapes: Shapes) -> PeakUpload:
        """Return the peaks of a reply; raise WireError if they are not those of a model."""
        sent = codes_of(reply)
        require(sent.bits == BYTE_BITS, f"an upload of peaks has bytes, not {sent.bits} bits")
        require(len(sent.step) == 1 and not sent.low.any(), "an upload of peaks has another grid")
        peak_norm = float(sent.step) * total_size(shapes)
        require(0 < peak_norm < MAX_PEAK_NORM, "the scale of an upload must be above 0 and finite")
        bits = from_bytes(sent.codes.cpu().numpy())
        require(len(bits) > START, "an upload of peaks is too short")
        seed, chunk_bits, *parameters = _read_numbers(bits)
        require(chunk_bits in CHUNK_BITS, f"an upload has chunks of 2**{chunk_bits} coordinates")
        chunks = chunks_of(shapes, chunk_bits)
        block_bits, used = _read_rates(bits[START:], chunks, parameters[0])
        count = int((block_bits <= chunks.sizes).sum())
        require(count > 0, "an upload has no peaks")
        exponents, more = _read_exponents(bits[START + used :], count, parameters[1])
        peaks = _read_peaks(bits[START + used + more :], block_bits, chunks)
        basis = Basis(shapes, chunk_bits, seed, reply.round)
        return PeakUpload(block_bits, exponents, peaks, sent.step, basis)


def _read_numbers(bits: Bits) -> list[int]:
    numbers, start = [], 0
    for width in (SEED_BITS, SIZE_BITS, RICE_BITS, RICE_BITS):
        numbers.append(int(read_fixed(bits[start : start + width], width)[0]))
        start += width
    return numbers


def _read_rates(bits: Bits, chunks: Chunks, parameter: int) -> tuple[Integers, int]:
    """Return the length of the blocks of each chunk in bits, and how many bits that takes."""
    count = len(chunks.sizes)
    changes, used = read_rice(bits[: MAX_CHUNK_NUMBERS * count], count, parameter)
    block_bits = from_zigzag(changes).cumsum()
    in_range = (block_bits >= 0) & (block_bits <= chunks.sizes + 1)
    require(bool(in_range.all()), "a chunk of an upload has blocks of an impossible length")
    return block_bits, used


def _read_exponents(bits: Bits, count: int, parameter: int) -> tuple[Integers, int]:
    """Return the exponents of the amplitudes, and how many bits they take."""
    changes, used = read_rice(bits[: MAX_CHUNK_NUMBERS * count], count, parameter)
    exponents = from_zigzag(changes).cumsum()
    in_range = exponents.min() >= 0 and exponents.max() < EXPONENTS
    require(bool(in_range), f"the exponents of an upload must be from 0 to {EXPONENTS - 1}")
    return exponents, used


def _read_peaks(bits: Bits, block_bits: Integers, chunks: Chunks) -> Integers:
    """Return the peaks of all blocks, which must fill the bits up to the last byte."""
    rates = list(by_rate(block_bits, chunks))
    size = sum((width + 1) * count for width, _, count in rates)
    count = sum(count for _, _, count in rates)
    require(size <= len(bits) < size + BYTE_BITS, f"an upload must have {count} peaks")
    require(not bits[size:].any(), "the last byte of an upload is not filled with zeros")
    peaks, start = [], 0
    for width, _, of_rate in rates:
        end = start + (width + 1) * of_rate
        peaks.append(read_fixed(bits[start:end], width + 1))
        start = end
    return np.concatenate(peaks)
