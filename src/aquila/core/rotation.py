"""Random rotations that both ends can make again from a seed: signs and Hadamard transforms.

A Hadamard transform needs a power of two. Any other length d is rotated in two windows of the
largest power n <= d, the first n coordinates and then the last n: each is orthogonal, together they
reach every coordinate, and nothing is padded.
"""

import math

import numpy as np
import torch

from aquila.core.random import Key
from aquila.core.vector import Vector


def rotate(v: Vector, key: Key) -> Vector:
    """Return the vector in a randomly rotated basis; its norm stays."""
    rotated = v.clone()
    for number, window in enumerate(_windows(v.numel())):
        rotated[window] = hadamard(rotated[window] * _signs(rotated[window], key.child(number)))
    return rotated


def unrotate(v: Vector, key: Key) -> Vector:
    """Undo `rotate` with the same key."""
    back = v.clone()
    for number, window in reversed(list(enumerate(_windows(v.numel())))):
        back[window] = hadamard(back[window]) * _signs(back[window], key.child(number))
    return back


def hadamard(v: Vector) -> Vector:
    """Return the orthonormal Walsh-Hadamard transform of a vector of a power of two coordinates."""
    length, half = v.numel(), 1
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
    # by numpy, because the two ends may compute on different hardware
    bits = torch.from_numpy(key.numpy().integers(2, size=like.numel(), dtype=np.int8))
    return bits.to(like) * 2 - 1
