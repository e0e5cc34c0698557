"""The coarsest grid that quantizes a vector within a given relative error."""

import math

import torch

from aquila.core.packet import Codes, code_dtype
from aquila.core.quantize import bits_for_levels
from aquila.core.vector import Vector, max_norm, squared_norm

SMALLEST_DEAD_ZONE, LARGEST_DEAD_ZONE = 0.65, 0.85

BISECTIONS = 7
"""Bisections of the range of possible steps, on a logarithmic scale."""

MAX_LEVELS = 2**22
"""Number of nonzero magnitudes. Float32 represents all of them exactly."""


def quantize_within(v: Vector, error: float) -> Codes:
    """Return codes dq with ||v - dq|| <= error ||v|| and about the largest step that achieves this.

    Below a relative error of about 1e-5, 2**22 levels may not suffice; the error is then larger.

    dq = step sign(v) floor(|v| / step + 1 - z) with the dead zone z. The error of a coordinate is
    at most z steps, so a step of error ||v|| / (z sqrt(d)) always suffices. Bisection looks for a
    larger one.
    """
    sizes, norm_squared, largest = v.abs(), squared_norm(v), max_norm(v)
    zone = dead_zone(error)
    safe = error * math.sqrt(norm_squared / v.numel()) / zone
    low, high = max(safe, largest / MAX_LEVELS), largest / zone
    for _ in range(BISECTIONS):
        middle = v.new_tensor([math.sqrt(low * high)])
        error_squared = squared_norm(sizes - _magnitudes(sizes, middle, zone) * middle)
        if error_squared <= error**2 * norm_squared:
            low = float(middle)
        else:
            high = float(middle)
    step = v.new_tensor([low])
    if not bool(step > 0):  # the zero vector, or the step underflows
        return Codes(torch.zeros_like(v, dtype=torch.uint8), 1, step, step, v.numel())
    magnitudes = _magnitudes(sizes, step, zone)
    top = max(1, int(magnitudes.max()))
    bits = bits_for_levels(top)
    codes = (magnitudes * v.sign() + top).to(code_dtype(bits))
    return Codes(codes, bits, -(step * top), step, v.numel())


def dead_zone(error: float) -> float:
    """Return the number of steps below which a coordinate becomes zero.

    The larger the error, the fewer coordinates are sent, and the closer are their sizes to the
    limit. These values were found with normal vectors, which take about the fewest bits with them.
    """
    return min(LARGEST_DEAD_ZONE, max(SMALLEST_DEAD_ZONE, 0.4 + error / 2))


def _magnitudes(sizes: Vector, step: Vector, zone: float) -> Vector:
    return (sizes / step + (1 - zone)).floor_()
