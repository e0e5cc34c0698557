"""Random rotations that both sides derive from a seed: random signs and Hadamard transforms.

The length of a Hadamard transform is a power of two. For any other length d, let n <= d be the
largest power of two. The first n coordinates are rotated, then the last n. Both steps are
orthogonal, together they reach every coordinate, and no padding is needed.
"""

import math

import numpy as np
import torch

from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.native import hadamard as native


def rotate(v: Vector, key: Key) -> Vector:
    """Rotate a vector by a random rotation, which preserves its norm."""
    rotated = v.clone()
    for number, window in enumerate(_windows(v.numel())):
        rotated[window] = hadamard(rotated[window] * _signs(rotated[window], key.child(number)))
    return rotated


def unrotate(v: Vector, key: Key) -> Vector:
    """Invert `rotate` with the same key."""
    back = v.clone()
    for number, window in reversed(list(enumerate(_windows(v.numel())))):
        back[window] = hadamard(back[window]) * _signs(back[window], key.child(number))
    return back


def hadamard(v: Vector) -> Vector:
    """Return the orthonormal Walsh-Hadamard transform. The dimension must be a power of two."""
    length, half = v.numel(), 1
    if v.is_cpu and v.dtype in (torch.float32, torch.float64):
        v, half = v.clone(memory_format=torch.contiguous_format), length
        native.transform(v.numpy())
    while half < length:
        pairs = v.reshape(-1, 2, half)
        v = torch.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), dim=1)
        half *= 2
    return v.reshape(length) / math.sqrt(length)


def _windows(dimension: int) -> list[slice]:
    length = 1 << (dimension.bit_length() - 1)
    first = [slice(0, length)]
    return first if length == dimension else [*first, slice(dimension - length, dimension)]


def _signs(like: Vector, key: Key) -> Vector:
    # from NumPy, because the two sides may compute on different hardware
    bits = torch.from_numpy(key.numpy().integers(2, size=like.numel(), dtype=np.int8))
    return bits.to(like) * 2 - 1
