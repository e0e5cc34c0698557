"""The coarsest grid that quantizes a vector within a given relative error."""

import math

import torch

from aquila.core.packet import Codes, code_dtype
from aquila.core.quantize import bits_for_levels
from aquila.core.vector import Vector, max_norm, squared_norm

DEAD_ZONE = 0.65
"""Coordinates below this many steps become zero. With 0.5 the codes take more bytes."""

BISECTIONS = 7
"""Bisections of the range of possible steps, on a logarithmic scale."""

MAX_LEVELS = 2**22
"""Number of nonzero magnitudes. Float32 represents all of them exactly."""


def quantize_within(v: Vector, error: float) -> Codes:
    """Return codes dq with ||v - dq|| <= error ||v|| and about the largest step that achieves this.

    dq = step sign(v) floor(|v| / step + 0.35). The error of a coordinate is at most 0.65 steps, so
    a step of error ||v|| / (0.65 sqrt(d)) always suffices. Bisection looks for a larger one.
    """
    sizes, norm_squared, largest = v.abs(), squared_norm(v), max_norm(v)
    safe = error * math.sqrt(norm_squared / v.numel()) / DEAD_ZONE
    low, high = max(safe, largest / MAX_LEVELS), largest / DEAD_ZONE
    for _ in range(BISECTIONS):
        middle = v.new_tensor([math.sqrt(low * high)])
        error_squared = squared_norm(sizes - _magnitudes(sizes, middle) * middle)
        if error_squared <= error**2 * norm_squared:
            low = float(middle)
        else:
            high = float(middle)
    step = v.new_tensor([low])
    if not bool(step > 0):  # the zero vector, or the step underflows
        return Codes(torch.zeros_like(v, dtype=torch.uint8), 1, step, step, v.numel())
    magnitudes = _magnitudes(sizes, step)
    top = max(1, int(magnitudes.max()))
    bits = bits_for_levels(top)
    codes = (magnitudes * v.sign() + top).to(code_dtype(bits))
    return Codes(codes, bits, -(step * top), step, v.numel())


def _magnitudes(sizes: Vector, step: Vector) -> Vector:
    return (sizes / step + (1 - DEAD_ZONE)).floor_()
