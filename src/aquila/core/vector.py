"""What a vector is here, and the few numbers every rule needs of one.

Sums of squares are the same to the last bit on every machine and device, so that levels and skips
are too. They are accumulated in float64 in one order: the square of coordinate i is added to lane
i mod 65536, smaller i first; then the lanes are folded by halves, `lanes[:h] + lanes[h:]`, until
one is left. Lanes that no coordinate reaches hold zero and change nothing. The square of a float32
is exact in float64; that of a float64 is rounded before it is added.
"""

import hashlib
import math

import torch

from aquila.core.passes import passes_for

Vector = torch.Tensor
"""A one-dimensional float32 or float64 tensor."""


def squared_norm(v: Vector) -> float:
    """Squared 2-norm, accumulated in float64 so that large models lose no digits."""
    return passes_for(v).measure(v, None)[1]


def max_norm(v: Vector) -> float:
    """Largest absolute coordinate, R in the papers; 0 for an empty vector, NaN if it holds one."""
    return passes_for(v).measure(v, None)[0]


def error_ratio(v: Vector, approximation: Vector) -> float:
    """Size of the error against the size of the vector; 0 for the zero vector."""
    _, error = passes_for(v, approximation).measure(v, approximation)
    return relative_norm(error, squared_norm(v))


def relative_norm(squared: float, whole: float) -> float:
    """Size of a part against the size of the whole, both given by their squared norms."""
    return math.sqrt(squared / whole) if whole else 0.0


def check_theta0(theta: object) -> None:
    """Raise TypeError or ValueError unless a run can begin from this."""
    if not isinstance(theta, torch.Tensor):
        raise TypeError(f"theta0 must be a torch tensor, not {type(theta).__name__}")
    if theta.ndim != 1 or theta.dtype not in (torch.float32, torch.float64) or not len(theta):
        raise ValueError(
            "theta0 must be a flat float32 or float64 vector, "
            f"not {tuple(theta.shape)} {theta.dtype}"
        )
    if not torch.isfinite(theta).all():
        raise ValueError("theta0 holds NaN or infinite numbers")


def digest(vector: torch.Tensor) -> str:
    """Return a few words that tell a vector from others."""
    content = vector.detach().cpu().numpy().tobytes()
    return f"{vector.numel()} x {vector.dtype} {hashlib.sha256(content).hexdigest()[:16]}"
