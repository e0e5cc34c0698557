"""Random rotations that both sides derive from a seed: random signs and Hadamard transforms.

The length of a Hadamard transform is a power of two. For any other length d, let n <= d be the
largest power of two. The first n coordinates are rotated, then the last n. Both steps are
orthogonal, together they reach every coordinate, and no padding is needed.

Before that, the vector is read column by column from a square that it fills row by row. Each half
then has coordinates of all large tensors, so that all rotated coordinates have about the same size.
"""

import math
from functools import lru_cache

import numpy as np
import torch

from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.native import hadamard as native


def rotate(v: Vector, key: Key) -> Vector:
    """Rotate a vector by a random rotation, which preserves its norm."""
    rotated = _by_columns(v)
    for number, window in enumerate(_windows(v.numel())):
        part = rotated[window]
        part.copy_(_transformed(part.mul_(_signs_like(part, key.child(number)))))
    return rotated


def unrotate(v: Vector, key: Key) -> Vector:
    """Invert `rotate` with the same key."""
    back = v.clone()
    for number, window in reversed(list(enumerate(_windows(v.numel())))):
        part = back[window]
        part.copy_(_transformed(part)).mul_(_signs_like(part, key.child(number)))
    return _by_columns(back)


def hadamard(v: Vector) -> Vector:
    """Return the orthonormal Walsh-Hadamard transform. The dimension must be a power of two."""
    return _transformed(v.clone(memory_format=torch.contiguous_format))


def _transformed(v: Vector) -> Vector:
    """Return `hadamard`, on the CPU in the memory of v."""
    length, half = v.numel(), 1
    if v.is_cpu and v.dtype in (torch.float32, torch.float64):
        native.transform(v.numpy())
        half = length
    while half < length:
        pairs = v.reshape(-1, 2, half)
        v = torch.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), dim=1)
        half *= 2
    # not a division, which GPUs replace by a product with the inverse and CPUs do not
    return v.reshape(length).mul_(1 / math.sqrt(length))


def _by_columns(v: Vector) -> Vector:
    """Return the columns of the largest square that fits, then the rest. It is its own inverse."""
    side = math.isqrt(v.numel())
    square, rest = v[: side**2].view(side, side), v[side**2 :]
    return torch.cat((square.t().reshape(-1), rest))


def _windows(dimension: int) -> list[slice]:
    length = 1 << (dimension.bit_length() - 1)
    first = [slice(0, length)]
    return first if length == dimension else [*first, slice(dimension - length, dimension)]


def _signs_like(v: Vector, key: Key) -> Vector:
    # float products are much faster than products of floats and small integers
    return _signs(key, v.numel(), v.device).to(v.dtype)


@lru_cache(maxsize=2)  # a device that rotates a vector inverts the same rotation next
def _signs(key: Key, count: int, device: torch.device) -> torch.Tensor:
    """Return random signs as small integers."""
    # drawn by NumPy, because the two sides may compute on different hardware
    drawn = np.frombuffer(key.numpy().bytes(-(-count // 8)), np.uint8)
    eights = torch.from_numpy(drawn.copy()).to(device)
    places = torch.arange(7, -1, -1, dtype=torch.uint8, device=device)
    bits = (eights[:, None] >> places).bitwise_and_(1)
    return bits.view(torch.int8).mul_(-2).add_(1).view(-1)[:count]
