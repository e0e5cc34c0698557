"""Vectors with a few numbers in a rotated basis. Those with the same basis are added in it.

A sum then takes one inverse rotation per basis, however many vectors there are.
"""

from dataclasses import dataclass

import torch

from aquila.core.chunks import Chunks, chunks_of
from aquila.core.random import Key
from aquila.core.rotation import unrotate_chunks_
from aquila.core.tensors import Shapes
from aquila.core.vector import Vector


@dataclass(frozen=True)
class Basis:
    """A random rotation of the chunks of a model.

    Attributes:
        shapes: The tensors of the model.
        chunk_bits: Logarithm to base 2 of the length of a chunk.
        seed: Seed of the rotation, together with the round.
        round_number: The round.
    """

    shapes: Shapes
    chunk_bits: int
    seed: int
    round_number: int

    @property
    def chunks(self) -> Chunks:
        """The chunks of the model."""
        return chunks_of(self.shapes, self.chunk_bits)

    @property
    def key(self) -> Key:
        """The key of the rotation."""
        return Key((self.seed, self.round_number))

    def unrotate_(self, padded: Vector) -> Vector:
        """Return the vector of a padded vector in this basis, which is overwritten."""
        return unrotate_chunks_(padded, self.chunks, self.key)


@dataclass(frozen=True, eq=False)
class RotatedVector:
    """A vector that is zero in a rotated basis, except at a few places of the padded vector."""

    positions: torch.Tensor
    values: Vector
    basis: Basis

    def to_dense(self) -> Vector:
        """Return the vector with all its coordinates."""
        padded = self.values.new_zeros(self.basis.chunks.padded_size)
        return self.basis.unrotate_(padded.index_copy_(0, self.positions, self.values))


class RotatedSum:
    """Adds rotated vectors to a float64 total, best with all of a basis one after the other."""

    def __init__(self, total: Vector) -> None:
        self._total = total
        self._basis: Basis | None = None
        self._padded = total

    def add(self, vector: RotatedVector, weight: float) -> None:
        """Add weight times a vector."""
        if vector.basis != self._basis:
            self.finish()
            self._basis = vector.basis
            size = vector.basis.chunks.padded_size
            self._padded = vector.values.new_zeros(size, dtype=torch.float64)
        self._padded.index_add_(0, vector.positions, vector.values.double(), alpha=weight)

    def finish(self) -> None:
        """Add what is still in the last basis."""
        if self._basis is not None:
            self._total.add_(self._basis.unrotate_(self._padded))
            self._basis = None
