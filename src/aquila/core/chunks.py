"""The chunks of a vector that are rotated one by one.

Each tensor is cut into chunks of a power of two of coordinates. What is left of it is one more
chunk, filled with zeros up to the next power of two, at least 64. The longest chunks come first;
those of equal length keep the order of their coordinates. The vector of all chunks is the *padded*
vector.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch

from aquila.core.bit_strings import Integers
from aquila.core.tensors import Shapes, total_size
from aquila.core.vector import Vector

MIN_BITS = 6
"""Logarithm to base 2 of the shortest chunk. Rotated coordinates of shorter ones are not normal."""


@dataclass(frozen=True)
class Run:
    """Chunks of equal length, one after the other in the padded vector."""

    start: int
    count: int
    length: int

    def rows(self, padded: Vector) -> Vector:
        """Return the chunks as rows of a view."""
        part = padded[self.start : self.start + self.count * self.length]
        return part.view(self.count, self.length)


@dataclass(frozen=True)
class Piece:
    """Coordinates that are next to each other both in the vector and in the padded one."""

    source: int
    target: int
    size: int


@dataclass(frozen=True)
class Chunks:
    """The chunks of a model: where its coordinates go, and the runs of chunks."""

    pieces: tuple[Piece, ...]
    runs: tuple[Run, ...]
    dimension: int

    @cached_property
    def padded_size(self) -> int:
        """Number of coordinates of the padded vector."""
        return sum(run.count * run.length for run in self.runs)

    @cached_property
    def sizes(self) -> Integers:
        """Return the logarithm to base 2 of the length of each chunk."""
        bits = [run.length.bit_length() - 1 for run in self.runs]
        return np.repeat(np.array(bits, np.int64), [run.count for run in self.runs])

    @cached_property
    def starts(self) -> Integers:
        """Return the first coordinate of each chunk in the padded vector."""
        lengths = 1 << self.sizes
        starts: Integers = np.cumsum(lengths) - lengths
        return starts

    def pad(self, v: Vector, factor: float = 1.0) -> Vector:
        """Return the padded vector of a factor times a vector."""
        padded = v.new_zeros(self.padded_size)
        for piece in self.pieces:
            target = padded[piece.target : piece.target + piece.size]
            torch.mul(v[piece.source : piece.source + piece.size], factor, out=target)
        return padded

    def unpad(self, padded: Vector) -> Vector:
        """Invert `pad`; what fills the chunks is dropped."""
        v = padded.new_empty(self.dimension)
        for piece in self.pieces:
            target, source = piece.target, piece.source
            v[source : source + piece.size] = padded[target : target + piece.size]
        return v


@lru_cache(maxsize=64)
def chunks_of(shapes: Shapes, bits: int) -> Chunks:
    """Return the chunks of a model with 2**bits coordinates each, apart from rests of tensors."""
    parts = _parts(shapes, bits)
    runs, pieces, start = [], [], 0
    for length in sorted({part.length for part in parts}, reverse=True):
        count = 0
        for part in parts:
            if part.length == length:
                pieces.append(Piece(part.source, start + count * length, part.size))
                count += part.count
        runs.append(Run(start, count, length))
        start += count * length
    return Chunks(tuple(pieces), tuple(runs), total_size(shapes))


@dataclass(frozen=True)
class _Part:
    """Chunks of equal length of one tensor."""

    source: int
    size: int
    count: int
    length: int


def _parts(shapes: Shapes, bits: int) -> list[_Part]:
    parts, source, length = [], 0, 1 << bits
    for size in (shape.numel() for shape in shapes):
        whole = size // length * length
        if whole:
            parts.append(_Part(source, whole, size // length, length))
        if rest := size - whole:
            filled = 1 << max(MIN_BITS, (rest - 1).bit_length())
            parts.append(_Part(source + whole, rest, 1, filled))
        source += size
    return parts
