"""The peak quantizer: an upload has only the largest coordinate of each block after a rotation.

After a random rotation R the coordinates of a vector look like a normal sample, unless only a few
were nonzero. An upload has the position of the largest magnitude of each block of n coordinates,
the *peak*, and its sign: 1 + log2 n bits. The decoded vector is S Rᵀ c, where c is ±1 at the peaks
and 0 elsewhere. With S = ||v||² / ⟨R v, c⟩ it equals v on average if R is a uniform rotation (EDEN,
arXiv 2108.08842, Theorem 2.1). Its squared error is ω ||v||² with ω close to n / a² - 1, where a is
the expected largest magnitude of n normal numbers.

Parts of a model differ in the size of their coordinates. So v is cut into groups, and a group with
the root mean square r is divided by the weight w = r^(1/4), rounded, before the rotation. The
receiver multiplies by w. The error is then at most ω (Σ w²) (Σ v² / w²) / d, which is at most about
ω ||v||² for every power of r from 0 to 1. The power 1/2 has the least error, but losses are steeper
where gradients are larger. docs/our-methods-peak.md says how 1/4 was chosen.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from aquila.core.bit_strings import (
    Bits,
    Integers,
    digits_size,
    from_bytes,
    from_zigzag,
    read_digits,
    read_fixed,
    read_unary,
    to_bytes,
    write_digits,
    write_fixed,
    write_unary,
    zigzag,
)
from aquila.core.envelope import require
from aquila.core.packet import Codes, Packet
from aquila.core.random import Key
from aquila.core.rotation import rotate, unrotate_
from aquila.core.tensor_grid import codes_of
from aquila.core.tensors import Shapes, split_tensors, total_size
from aquila.core.vector import Vector, squared_norm

MAX_BLOCK = 2**15
"""Coordinates of the longest block."""
LEVELS = 32
"""Levels of the groups: the rms of a group of level k is about 2**-k times that of level 0."""
WEIGHT_POWER = 0.25
"""A group of level k is multiplied by 2**(k / 4) before the rotation."""
NUMBER_BITS = 16
"""Bits of the seed of a rotation, and of the length of the blocks."""
BYTE_BITS = 8
GROUP_BLOCKS = 8
"""Groups have the coordinates of this many blocks or more, so that their levels cost little."""
MIN_EXPONENT = -100
"""Exponent of the smallest unit of a vector. Its inverse must be a float, too."""
MAX_PEAK_NORM = 1e38
"""Limit of S d. No sum of the transforms that decode an upload can be larger."""


@dataclass(frozen=True, eq=False)
class PeakUpload:
    """A quantized vector: the levels of the groups and the peaks of the blocks.

    Attributes:
        levels: Level of each group.
        peaks: Per block 2 × position of the peak, plus 1 if it is negative.
        scale: S, one float.
        block: Coordinates per block, n.
        seed: Seed of the rotation, together with the round.
        round_number: Round of the reply.
        shapes: The tensors of the model.
    """

    levels: torch.Tensor
    peaks: torch.Tensor
    scale: Vector
    block: int
    seed: int
    round_number: int
    shapes: Shapes

    @property
    def dimension(self) -> int:
        """Number of coordinates of the model."""
        return total_size(self.shapes)

    @property
    def bits(self) -> int:
        """Bits per coordinate, rounded up."""
        return 1

    def decode(self) -> Vector:
        """Return the vector both sides agree on."""
        rotated = self.scale.new_zeros(self.dimension)
        positions = self.peaks // 2 + torch.arange(len(self.peaks)).to(self.peaks) * self.block
        rotated[positions] = torch.where(self.peaks % 2 == 1, -self.scale, self.scale)
        u = unrotate_(rotated, rotation_key(self.seed, self.round_number))
        return multiply_groups(u, self.levels, self.shapes, self.block, -WEIGHT_POWER)

    def to_codes(self) -> Codes:
        """Return the bytes that a frame carries: seed, block length, levels and peaks."""
        levels = self.levels.cpu().numpy()
        parts = (
            write_fixed(np.array([self.seed, self.block]), NUMBER_BITS),
            write_unary(zigzag(np.diff(levels, prepend=0))),
            write_digits(self.peaks.cpu().numpy(), 2 * self.block),
        )
        codes = torch.from_numpy(to_bytes(np.concatenate(parts)))
        low = torch.zeros_like(self.scale)
        return Codes(codes.to(low.device), BYTE_BITS, low, self.scale, codes.numel())


def rotation_key(seed: int, round_number: int) -> Key:
    """Return the key of the rotation of an upload."""
    return Key((seed, round_number))


def quantize_peaks(
    v: Vector, shapes: Shapes, block: int, key: Key, round_number: int
) -> PeakUpload | None:
    """Quantize a vector with a rotation that the key draws; None for a zero vector."""
    levels = group_levels(v, shapes, block)
    if levels is None:
        return None
    weighted = multiply_groups(v.clone(), levels, shapes, block, WEIGHT_POWER)
    # a power of two keeps all digits, and sums of the rotation can neither overflow nor vanish
    unit = 2.0 ** max(MIN_EXPONENT, math.frexp(math.sqrt(squared_norm(weighted)))[1])
    weighted.div_(unit)
    seed = int(key.numpy().integers(2**NUMBER_BITS))
    rotated = rotate(weighted, rotation_key(seed, round_number))
    blocks = _blocks(rotated, block)
    sizes, positions = blocks.abs().max(1)
    negative = blocks.gather(1, positions[:, None]).squeeze(1) < 0
    scale = v.new_full((1,), unit * squared_norm(weighted) / float(sizes.double().sum()))
    if not scale:  # too small for a float
        return None
    peaks = 2 * positions + negative
    return PeakUpload(levels, peaks, scale, block, seed, round_number, shapes)


def expected_error(block: int) -> float:
    """Return ω, the expected squared error of blocks of this length relative to ||v||²."""
    return block / expected_peak(block) ** 2 - 1


@cache
def expected_peak(block: int) -> float:
    """Return the expected largest magnitude of this many standard normal numbers."""
    step = 1e-3
    largest = [1 - math.erf(x * step / math.sqrt(2)) ** block for x in range(1, 10_000)]
    return step * (0.5 + sum(largest))


@dataclass(frozen=True)
class TensorGroups:
    """The groups of one tensor: equal parts, and a rest that belongs to the last of them."""

    count: int
    size: int

    def mean_squares(self, part: Vector) -> Vector:
        """Return the mean square of each group of the tensor, in float64."""
        whole = self.count * self.size
        norms = torch.linalg.vector_norm(
            part[:whole].view(self.count, self.size), dim=1, dtype=torch.float64
        )
        squares: Vector = norms.square_()
        squares[-1] += squared_norm(part[whole:])
        lengths = torch.full_like(squares, self.size)
        lengths[-1] += part.numel() - whole
        return squares.div_(lengths)

    def multiply_(self, part: Vector, factors: Vector) -> None:
        """Multiply each group of the tensor by its factor, in place."""
        whole = self.count * self.size
        part[:whole].view(self.count, self.size).mul_(factors[:, None])
        part[whole:].mul_(factors[-1])


def groups_of(shapes: Shapes, block: int) -> list[TensorGroups]:
    """Return the groups of each tensor that is not empty.

    A group has at least `GROUP_BLOCKS` blocks, unless its tensor has fewer.
    """
    groups = []
    for size in (shape.numel() for shape in shapes if shape.numel()):
        count = max(1, size // (GROUP_BLOCKS * block))
        groups.append(TensorGroups(count, size // count))
    return groups


def group_count(shapes: Shapes, block: int) -> int:
    """Return the number of groups of all tensors."""
    return sum(groups.count for groups in groups_of(shapes, block))


def group_levels(v: Vector, shapes: Shapes, block: int) -> torch.Tensor | None:
    """Return the level of each group, None for a zero vector."""
    parts = zip(groups_of(shapes, block), _tensors(v, shapes), strict=True)
    squares = torch.cat([groups.mean_squares(part) for groups, part in parts])
    largest = squares.max()
    if not largest > 0:
        return None
    return torch.log2(largest / squares).div_(2).round_().clamp_(0, LEVELS - 1).to(torch.int64)


def multiply_groups(
    v: Vector, levels: torch.Tensor, shapes: Shapes, block: int, power: float
) -> Vector:
    """Multiply each group by 2**(power × level) in place, and return the vector."""
    # not with torch.exp2, whose last bit may depend on the hardware
    of_levels = torch.tensor([2 ** (power * level) for level in range(LEVELS)], dtype=torch.float64)
    factors = of_levels.to(v)[levels]
    groups = groups_of(shapes, block)
    of_tensors = torch.split(factors, [of_tensor.count for of_tensor in groups])
    for of_tensor, part, factor in zip(groups, _tensors(v, shapes), of_tensors, strict=True):
        of_tensor.multiply_(part, factor)
    return v


def _tensors(v: Vector, shapes: Shapes) -> list[Vector]:
    """Return the tensors of a vector that are not empty."""
    return [part for part in split_tensors(v, shapes) if part.numel()]


def _blocks(rotated: Vector, block: int) -> Vector:
    """Return the coordinates as rows of a block each; the last row is filled with zeros."""
    missing = -rotated.numel() % block
    return torch.nn.functional.pad(rotated, (0, missing)).view(-1, block)


@dataclass(frozen=True)
class PeakReader:
    """Reads uploads of `quantize_peaks`."""

    def dimensions(self, shapes: Shapes) -> range:
        """Return the possible numbers of bytes, whatever the levels and the length of the blocks.

        There are most groups and bits of peaks if a block has one coordinate. A level takes at most
        2 × LEVELS bits.
        """
        levels = group_count(shapes, 1) * LEVELS // 4
        return range(5, 24 + levels + total_size(shapes) // BYTE_BITS)

    def read(self, reply: Packet, shapes: Shapes) -> PeakUpload:
        """Return the peaks of a reply; raise WireError if they are not those of a model."""
        sent = codes_of(reply)
        require(sent.bits == BYTE_BITS, f"an upload of peaks has bytes, not {sent.bits} bits")
        require(len(sent.step) == 1 and not sent.low.any(), "an upload of peaks has another grid")
        peak_norm = float(sent.step) * total_size(shapes)
        require(0 < peak_norm < MAX_PEAK_NORM, "the scale of an upload must be above 0 and finite")
        bits = from_bytes(sent.codes.cpu().numpy())
        require(len(bits) > 2 * NUMBER_BITS, "an upload of peaks is too short")
        seed, block = read_fixed(bits[: 2 * NUMBER_BITS], NUMBER_BITS).tolist()
        require(1 <= block <= MAX_BLOCK, f"an upload has blocks of {block} coordinates")
        levels, used = _read_levels(bits[2 * NUMBER_BITS :], shapes, block)
        peaks = _read_peaks(bits[2 * NUMBER_BITS + used :], total_size(shapes), block)
        device = sent.step.device
        return PeakUpload(
            torch.from_numpy(levels).to(device),
            torch.from_numpy(peaks).to(device),
            sent.step,
            block,
            seed,
            reply.round,
            shapes,
        )


def _read_levels(bits: Bits, shapes: Shapes, block: int) -> tuple[Integers, int]:
    """Return the levels of the groups, and how many bits they take."""
    count = group_count(shapes, block)
    changes, used = read_unary(bits[: 2 * LEVELS * count], count)
    levels = from_zigzag(changes).cumsum()
    in_range = not len(levels) or (levels.min() >= 0 and levels.max() < LEVELS)
    require(bool(in_range), f"the levels of an upload must be from 0 to {LEVELS - 1}")
    return levels, used


def _read_peaks(bits: Bits, dimension: int, block: int) -> Integers:
    """Return the peaks of all blocks, which must fill the bits up to the last byte."""
    count = -(-dimension // block)
    size = digits_size(count, 2 * block)
    require(size <= len(bits) < size + BYTE_BITS, f"an upload must have {count} peaks")
    require(not bits[size:].any(), "the last byte of an upload is not filled with zeros")
    peaks = read_digits(bits[:size], count, 2 * block)
    last = dimension - (count - 1) * block
    require(int(peaks[-1]) < 2 * last, "a peak of an upload is outside its block")
    return peaks
