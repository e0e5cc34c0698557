"""What devices and the server say to each other, before it becomes bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from aquila.core.vector import Vector

NEVER = -1
"""The `ack` of a device none of whose replies has been applied yet."""


MAX_BITS = 32
"""Widest code of a coordinate."""


class WireError(ValueError):
    """A message that is not what it claims to be, or that may not be used here and now."""


@dataclass(frozen=True, eq=False)
class Dense:
    """A vector sent as it is."""

    values: Vector

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.values.numel()

    @property
    def bits(self) -> int:
        """Bits a coordinate."""
        return self.values.element_size() * 8

    def decode(self) -> Vector:
        """Return the vector both sides agree on."""
        return self.values


@dataclass(frozen=True, eq=False)
class Codes:
    """A vector on a uniform grid: coordinate i is `low + step * codes[i]`, 0 <= codes[i] < 2**bits.

    `low` and `step` hold one entry for each run of `bucket` coordinates; one entry in all when
    the grid spans the whole vector. `dither_seed` is the seed of the lots that
    the codes were drawn by, if they were: it tells the wire where a code that is not in the middle
    is likely.
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
        """Return the vector both sides agree on: one rounded product, then one rounded sum."""
        scaled = self.codes.to(self.low.dtype)
        if len(self.low) == 1:
            return scaled.mul_(self.step).add_(self.low)
        return scaled.mul_(self._expand_buckets(self.step)).add_(self._expand_buckets(self.low))

    def _expand_buckets(self, grid: Vector) -> Vector:
        return grid.repeat_interleave(self.bucket)[: self.dimension]


@dataclass(frozen=True, eq=False)
class Packet:
    """One message: an order from the server, or a device's reply.

    A reply without a vector is a skip. `ack` is set by the server alone: the round of the last
    reply of this device that it has applied. `answers` ties messages together by their content:
    in a reply it is the checksum of the order, in an order that of the reply in `ack`. A `fresh`
    reply starts from the initial state although the order acknowledges an earlier reply.
    """

    round: int
    vector: Dense | Codes | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)
    ack: int = NEVER
    refused: bool = False
    answers: int = 0
    fresh: bool = False

    def scalar(self, name: str) -> float:
        """Return a scalar that must be there."""
        if name not in self.scalars:
            raise WireError(f"message of round {self.round} lacks the scalar {name!r}")
        return self.scalars[name]


def code_dtype(bits: int) -> torch.dtype:
    """Smallest integer type that holds codes of this width."""
    for limit, dtype in ((8, torch.uint8), (15, torch.int16), (31, torch.int32)):
        if bits <= limit:
            return dtype
    return torch.int64
