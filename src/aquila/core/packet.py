"""Messages between devices and the server, before they become bytes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Protocol

import torch

from aquila.core.vector import SparseVector, Vector, squared_norm
from aquila.native import accumulate

NEVER = -1
"""The `ack` of a device before the server has applied any of its replies."""


MAX_BITS = 32
"""Bits of the widest code."""

WIDEST_CODE_BYTES = 8
"""Bytes of the widest type of codes, which the passes in C do not read."""


BLOCK = 2**15
"""Coordinates on several grids that are added at a time."""


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
    both sides can derive it. The coder predicts from it which coordinates are nonzero.
    """

    codes: torch.Tensor
    bits: int
    low: Vector
    step: Vector
    bucket: int
    dither_seed: int | None = None

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.codes.numel()

    def decode(self) -> Vector:
        """Return the vector both sides agree on: round the product, then round the sum."""
        scaled = self.codes.to(self.low.dtype)
        if len(self.low) == 1:
            return scaled.mul_(self.step).add_(self.low)
        whole = self.dimension // self.bucket
        rows, rest = scaled[: whole * self.bucket], scaled[whole * self.bucket :]
        rows.view(whole, -1).mul_(self.step[:whole, None]).add_(self.low[:whole, None])
        rest.mul_(self.step[-1]).add_(self.low[-1])
        return scaled

    def add_to(self, total: Vector, weight: float) -> None:
        """Add weight times the decoded vector to a float64 vector, with the bits of `decode`."""
        if weight == 1 and self._has_fused_pass:
            low, step, is_double = self._grid
            accumulate.add_codes(total.numpy(), self.codes.numpy(), low, step, is_double)
            return
        for first, codes in self._blocks():
            total[first : first + codes.dimension].add_(codes.decode(), alpha=weight)

    def squared_norm(self) -> float:
        """Return the squared 2-norm of the decoded vector."""
        if not self._has_fused_pass:
            return squared_norm(self.decode())
        return accumulate.squared_norm_of_codes(self.codes.numpy(), *self._grid)

    def _blocks(self) -> Iterator[tuple[int, "Codes"]]:
        """Yield parts of whole buckets that fit in the cache of the CPU, and where they start."""
        buckets = max(1, BLOCK // self.bucket) if self.codes.is_cpu else len(self.low)
        for grid in range(0, len(self.low), buckets):
            grids, first = slice(grid, grid + buckets), grid * self.bucket
            codes = self.codes[first : first + buckets * self.bucket]
            yield first, replace(self, codes=codes, low=self.low[grids], step=self.step[grids])

    @property
    def _has_fused_pass(self) -> bool:
        is_plain = self.codes.is_cpu and self.codes.is_contiguous()
        return is_plain and len(self.low) == 1 and self.codes.element_size() < WIDEST_CODE_BYTES

    @property
    def _grid(self) -> tuple[float, float, bool]:
        return float(self.low), float(self.step), self.low.dtype == torch.float64


@dataclass(frozen=True, eq=False)
class SparseCodes:
    """Codes on one grid of which nearly all decode to exactly zero, as read from a frame.

    Memory and time to decode grow with the number of nonzero coordinates.

    Attributes:
        positions: positions of the nonzero coordinates, in increasing order.
        nonzero: the codes of these coordinates.
        centre: the code of all other coordinates.
        dimension: number of coordinates.
        bits, low, step, dither_seed: as in `Codes`.
    """

    positions: torch.Tensor
    nonzero: torch.Tensor
    centre: int
    dimension: int
    bits: int
    low: Vector
    step: Vector
    dither_seed: int | None = None

    @property
    def bucket(self) -> int:
        """Coordinates that share one grid: all of them."""
        return self.dimension

    @property
    def codes(self) -> torch.Tensor:
        """The codes of all coordinates, computed at each access."""
        codes = self.nonzero.new_empty(self.dimension).fill_(self.centre)
        return codes.index_copy_(0, self.positions, self.nonzero)

    @property
    def nbytes(self) -> int:
        """Bytes of positions and codes."""
        return self.positions.nbytes + self.nonzero.nbytes

    def to_codes(self) -> Codes:
        """Return the same vector with the codes of all coordinates."""
        return Codes(self.codes, self.bits, self.low, self.step, self.dimension, self.dither_seed)

    def decode(self) -> Vector:
        """Return the vector both sides agree on."""
        return self.decode_sparse().to_dense(self.dimension)

    def decode_sparse(self) -> SparseVector:
        """Return the nonzero coordinates of the vector."""
        few = Codes(self.nonzero, self.bits, self.low, self.step, self.dimension)
        return SparseVector(self.positions, few.decode())


@dataclass(frozen=True)
class RelayedRound:
    """The replies of one round, and how the model has changed with them.

    The change is `factor` times the sum of each weight times its upload.

    Attributes:
        base: checksum of the model before the change.
        factor: factor on the sum.
        weights: weight of each reply.
        frames: the replies, as they were received.
    """

    base: int
    factor: float
    weights: tuple[float, ...]
    frames: tuple[bytes, ...]


@dataclass(frozen=True)
class RelayedUploads:
    """Replies of devices that the server passes on, to tell how the model has changed.

    Only a reader that knows the method can decode the uploads.

    Attributes:
        dimension: number of coordinates of the model.
        dtype: type of the model, float32 or float64.
        rounds: the changes of the model, one after the other.
    """

    dimension: int
    dtype: torch.dtype
    rounds: tuple[RelayedRound, ...]

    @property
    def bits(self) -> int:
        """Bits per coordinate: none, because there are no coordinates."""
        return 0

    def decode(self) -> Vector:
        """Raise WireError."""
        raise WireError("relayed uploads are not a vector")


@dataclass(frozen=True, eq=False)
class StoredUpload:
    """An upload that is read or computed again whenever it is decoded, to save memory.

    Attributes:
        dimension: number of coordinates.
        bits: bits per coordinate.
        load: returns the upload.
        basis_number: uploads with the same one are best added one after the other.
    """

    dimension: int
    bits: int
    load: Callable[[], Upload]
    basis_number: int = 0

    def decode(self) -> Vector:
        """Return the vector both sides agree on."""
        return self.load().decode()


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


@cache
def code_dtype(bits: int) -> torch.dtype:
    """Return the smallest integer type that holds codes of this width."""
    for limit, dtype in ((8, torch.uint8), (15, torch.int16), (31, torch.int32)):
        if bits <= limit:
            return dtype
    return torch.int64
