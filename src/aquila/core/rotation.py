"""Random rotations that both sides derive from a seed: random signs and Hadamard transforms.

The length of a Hadamard transform is a power of two. `rotate` mixes a whole vector of any length d.
Let n <= d be the largest power of two. The first n coordinates are rotated, then the last n. Both
steps are orthogonal, together they reach every coordinate, and no padding is needed. Before that,
the vector is read column by column from a square that it fills row by row. Each half then has
coordinates of all large tensors, so that all rotated coordinates have about the same size.

`rotate_chunks` rotates each chunk of a vector on its own, in the cache of a processor. It does so
twice, because one transform of few nonzero coordinates does not look like a normal sample.
"""

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from aquila.core.chunks import Chunks
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.native import hadamard as native

STAGES = 2
"""Changes of sign and transforms of a chunk."""


def rotate(v: Vector, key: Key) -> Vector:
    """Rotate a vector by a random rotation, which preserves its norm."""
    rotated = _by_columns(v)
    for number, window in enumerate(_windows(v.numel())):
        part = rotated[window]
        _flip_signs(part, key.child(number))
        part.copy_(_transformed(part, len(part)))
    return rotated


def unrotate_(v: Vector, key: Key) -> Vector:
    """Invert `rotate` with the same key. This overwrites v."""
    for number, window in reversed(list(enumerate(_windows(v.numel())))):
        part = v[window]
        part.copy_(_transformed(part, len(part)))
        _flip_signs(part, key.child(number))
    return _by_columns(v)


def rotate_chunks(v: Vector, chunks: Chunks, key: Key, factor: float = 1.0) -> Vector:
    """Return the padded vector of a factor times a vector, with all chunks rotated."""
    padded = chunks.pad(v, factor)
    for stage in range(STAGES):
        _flip_signs(padded, key.child(stage))
        _transform_chunks(padded, chunks)
    return padded


def unrotate_chunks_(padded: Vector, chunks: Chunks, key: Key) -> Vector:
    """Invert `rotate_chunks` with the same key. This overwrites the padded vector."""
    for stage in reversed(range(STAGES)):
        _transform_chunks(padded, chunks)
        _flip_signs(padded, key.child(stage))
    return chunks.unpad(padded)


def chunk_squares(padded: Vector, chunks: Chunks) -> Vector:
    """Return the sum of squares of each chunk, with the same bits on all hardware."""
    return torch.cat([_squares(run.rows(padded)) for run in chunks.runs])


def _squares(rows: Vector) -> Vector:
    if _has_native_passes(rows):
        sums = rows.new_empty(len(rows))
        native.squares(rows.reshape(-1).numpy(), sums.numpy())
        return sums
    sums = rows.square()
    while sums.shape[1] > 1:
        low, high = sums.view(len(rows), 2, -1).unbind(1)
        sums = low + high
    return sums.view(-1)


def _transform_chunks(padded: Vector, chunks: Chunks) -> None:
    for run in chunks.runs:
        part = run.rows(padded).view(-1)
        part.copy_(_transformed(part, run.length))


def hadamard(v: Vector) -> Vector:
    """Return the orthonormal Walsh-Hadamard transform. The dimension must be a power of two."""
    return _transformed(v.clone(memory_format=torch.contiguous_format), v.numel())


def _transformed(v: Vector, length: int) -> Vector:
    """Return `hadamard` of each part of this length, on the CPU in the memory of v."""
    half = 1
    if _has_native_passes(v):
        native.transform(v.numpy(), length)
        half = length
    while half < length:
        pairs = v.reshape(-1, 2, half)
        v = torch.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), dim=1)
        half *= 2
    # not a division, which GPUs replace by a product with the inverse and CPUs do not
    return v.reshape(-1).mul_(1 / math.sqrt(length))


def _by_columns(v: Vector) -> Vector:
    """Return the columns of the largest square that fits, then the rest. It is its own inverse."""
    side = math.isqrt(v.numel())
    if _has_native_passes(v) and v.is_contiguous():
        columns = torch.empty_like(v)
        native.by_columns(v.numpy(), columns.numpy(), side)
        return columns
    square, rest = v[: side**2].view(side, side), v[side**2 :]
    return torch.cat((square.t().reshape(-1), rest))


def _windows(dimension: int) -> list[slice]:
    length = 1 << (dimension.bit_length() - 1)
    first = [slice(0, length)]
    return first if length == dimension else [*first, slice(dimension - length, dimension)]


def _flip_signs(v: Vector, key: Key) -> None:
    """Multiply a vector by random signs in place."""
    drawn = _sign_bits(key, v.numel())
    if _has_native_passes(v):
        native.flip_signs(v.numpy(), drawn)
        return
    eights = torch.from_numpy(drawn.copy()).to(v.device)
    places = torch.arange(7, -1, -1, dtype=torch.uint8, device=v.device)
    bits = (eights[:, None] >> places).bitwise_and_(1)
    v.mul_(bits.view(torch.int8).mul_(-2).add_(1).view(-1)[: v.numel()])


@lru_cache(maxsize=STAGES)  # a device that rotates a vector inverts the same rotation next
def _sign_bits(key: Key, count: int) -> NDArray[np.uint8]:
    """Return random bits, which are ones where a sign is negative."""
    # drawn by NumPy, because the two sides may compute on different hardware
    return np.frombuffer(key.numpy().bytes(-(-count // 8)), np.uint8)


def _has_native_passes(v: Vector) -> bool:
    return v.is_cpu and v.dtype in (torch.float32, torch.float64)
