"""Messages between devices and the server, before they become bytes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from aquila.core.vector import BLOCK, GridVector, SparseVector, Summand, Vector

NEVER = -1
"""The `ack` of a device before the server has applied any of its replies."""


MAX_BITS = 32
"""Bits of the widest code."""

SPARSE_RATIO = 16
"""A vector is added as a sparse one if at most one coordinate in so many is nonzero."""


class WireError(ValueError):
    """A message is invalid, or the receiver cannot accept it in its present state."""


class DimensionError(WireError):
    """A vector has another number of coordinates than the receiver expects."""


class Upload(Protocol):
    """What a reply carries: `Dense` and `Codes`, or a form that a method's reader makes of them."""

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        ...

    @property
    def bits(self) -> int:
        """Bits per coordinate."""
        ...

    def decode(self) -> Vector:
        """Return the vector both sides agree on."""
        ...


@dataclass(frozen=True, eq=False)
class Dense:
    """A vector that is sent unquantized."""

    values: Vector

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.values.numel()

    @property
    def bits(self) -> int:
        """Bits per coordinate."""
        return self.values.element_size() * 8

    def decode(self) -> Vector:
        """Return the vector both sides agree on."""
        return self.values


@dataclass(frozen=True, eq=False)
class Codes:
    """A vector on a uniform grid: coordinate i is `low + step * codes[i]`, 0 <= codes[i] < 2**bits.

    `low` and `step` hold one entry per `bucket` consecutive coordinates, so a single entry if one
    grid covers the whole vector. `dither_seed` is the seed of the dither that rounded the codes, if
    both sides can derive it. The coder predicts from it which coordinates are nonzero. `nonzero`
    has the positions of all coordinates that are not exactly zero, in increasing order, if the
    reader of a frame knows them.
    """

    codes: torch.Tensor
    bits: int
    low: Vector
    step: Vector
    bucket: int
    dither_seed: int | None = None
    nonzero: torch.Tensor | None = None

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.codes.numel()

    def decode(self) -> Vector:
        """Return the vector both sides agree on: round the product, then round the sum."""
        return self._grid_vector.to_dense()

    def summand(self) -> Summand:
        """Return the same vector for a sum or a norm, as a sparse one if few are nonzero.

        A large dense vector stays coded.
        """
        if self.nonzero is not None and SPARSE_RATIO * self.nonzero.numel() <= self.dimension:
            few = replace(self, codes=self.codes[self.nonzero], nonzero=None)
            return SparseVector(self.nonzero, few.decode())
        stays_coded = self.dimension > BLOCK and self.codes.is_cpu
        return self._grid_vector if stays_coded else self.decode()

    @property
    def _grid_vector(self) -> GridVector:
        return GridVector(self.codes, self.low, self.step, self.bucket)


@dataclass(frozen=True, eq=False)
class Packet:
    """One message: an order from the server, or a device's reply.

    Attributes:
        round: the round that the message belongs to.
        vector: the vector; a reply without one is a skip.
        scalars: named numbers.
        ack: in an order, the round of this device's last reply that the server applied.
        refused: the device did not compute.
        refers_to: a checksum. A reply names its order by it. A control frame names the reply that
            `ack` acknowledges. A model frame names its model, or the model that its difference is
            added to.
        fresh: the device restarted from its initial state, although the order acknowledges a reply.
    """

    round: int
    vector: Upload | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)
    ack: int = NEVER
    refused: bool = False
    refers_to: int = 0
    fresh: bool = False

    def scalar(self, name: str) -> float:
        """Return a required scalar; raise WireError if it is missing."""
        if name not in self.scalars:
            raise WireError(f"message of round {self.round} lacks the scalar {name!r}")
        return self.scalars[name]


def summand_of(upload: Upload) -> Summand:
    """Return the vector of an upload for an average or a norm, in the form that it offers.

    An upload may have a function `summand`. Default: the decoded vector.
    """
    summand: Callable[[], Summand] | None = getattr(upload, "summand", None)
    return upload.decode() if summand is None else summand()


def code_dtype(bits: int) -> torch.dtype:
    """Return the smallest integer type that holds codes of this width."""
    for limit, dtype in ((8, torch.uint8), (15, torch.int16), (31, torch.int32)):
        if bits <= limit:
            return dtype
    return torch.int64
