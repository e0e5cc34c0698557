"""What a vector is here, and the few numbers every rule needs of one."""

import math

import torch

Vector = torch.Tensor
"""A one-dimensional float32 or float64 tensor."""


def squared_norm(v: Vector) -> float:
    """Squared 2-norm, accumulated in float64 so that large models lose no digits."""
    return float(torch.linalg.vector_norm(v, dtype=torch.float64)) ** 2


def max_norm(v: Vector) -> float:
    """Largest absolute coordinate, R in the papers; 0 for an empty vector."""
    return float(v.abs().max()) if v.numel() else 0.0


def error_ratio(v: Vector, approximation: Vector) -> float:
    """Size of the error against the size of the vector; 0 for the zero vector."""
    return relative_size(squared_norm(v - approximation), v)


def relative_size(squared: float, v: Vector) -> float:
    """Size of something, given by its squared norm, against the size of a vector."""
    size = squared_norm(v)
    return math.sqrt(squared / size) if size else 0.0
