"""Upload and next state of a device, from its gradient and its state.

An update takes two fused passes over the vectors, and stores nothing but its result. Vectors that
have no such passes take the same steps as torch operations. Both give the same bits.
"""

from dataclasses import dataclass

from aquila.core.packet import Codes, code_dtype
from aquila.core.passes import FusedPasses, fused_passes, passes_for
from aquila.core.quantize import (
    bits_for_levels,
    dither_seed,
    fused_dither,
    fused_dither_passes,
    make_sparse_codes,
    sent_count,
    shared_dither,
    sparse,
    sparse_grid,
    sparse_top,
)
from aquila.core.random import Key
from aquila.core.vector import Vector, error_ratio, relative_norm, squared_norm


@dataclass(frozen=True, eq=False)
class DitheredUpdate:
    """An upload, the memory after it, and the relative error of the upload."""

    codes: Codes
    memory: Vector
    error_ratio: float


@dataclass(frozen=True, eq=False)
class FeedbackUpdate:
    """An upload, what it leaves out, the memory after it, and its relative error.

    Without an upload, `error` is the accumulated vector and the memory is the old one.
    """

    codes: Codes | None
    error: Vector
    memory: Vector
    error_ratio: float = 0.0


def dithered_upload(v: Vector, density: float, key: Key) -> tuple[Codes, float] | None:
    """Return the codes of `shared_dither` and their relative error; None if nothing is sent."""
    passes = fused_dither_passes(density, v)
    if passes is not None:
        fused = fused_dither(passes, v, None, 0.0, density, dither_seed(key, density))
        if fused is None:
            return None
        return fused.codes, relative_norm(fused.error_squared, fused.squared)
    codes = shared_dither(v, density, key)
    return None if codes is None else (codes, error_ratio(v, codes.decode()))


def dithered_update(
    gradient: Vector, memory: Vector, rate: float, density: float, key: Key
) -> DitheredUpdate | None:
    """Upload u = Q(gradient - memory) with Q of `shared_dither`, and add rate u to the memory.

    A memory whose rate is 0 must be zero, and stays so. Returns None if there is nothing to send.
    """
    if not rate:
        upload = dithered_upload(gradient, density, key)
        return None if upload is None else DitheredUpdate(upload[0], memory, upload[1])
    passes = fused_dither_passes(density, gradient, memory)
    if passes is not None:
        seed = dither_seed(key, density)
        fused = fused_dither(passes, gradient, memory, rate, density, seed)
        if fused is None or fused.new_memory is None:
            return None
        ratio = relative_norm(fused.error_squared, fused.squared)
        return DitheredUpdate(fused.codes, fused.new_memory, ratio)
    v = gradient - memory
    codes = shared_dither(v, density, key)
    if codes is None:
        return None
    u = codes.decode()
    return DitheredUpdate(codes, memory + rate * u, error_ratio(v, u))


def feedback_update(
    error: Vector, gradient: Vector, memory: Vector, rate: float, density: float
) -> FeedbackUpdate:
    """Upload u = Q(v) with v = error + (gradient - memory) and Q of `sparse`.

    The next error is v - u, and the memory becomes memory + rate u.
    """
    passes = fused_passes(passes_for(error, gradient, memory))
    if gradient.numel() and passes is not None:
        return _fused_feedback_update(passes, error, gradient, memory, rate, density)
    v = error + (gradient - memory)
    codes = sparse(v, density)
    if codes is None:
        return FeedbackUpdate(None, v, memory)
    u = codes.decode()
    residual = v - u
    ratio = relative_norm(squared_norm(residual), squared_norm(v))
    return FeedbackUpdate(codes, residual, memory + rate * u, ratio)


def _fused_feedback_update(
    passes: FusedPasses,
    error: Vector,
    gradient: Vector,
    memory: Vector,
    rate: float,
    density: float,
) -> FeedbackUpdate:
    v, largest, squared, kth = passes.accumulate(
        error, gradient, memory, sent_count(gradient, density)
    )
    grid = sparse_grid(largest, kth, like=v)
    if grid is None:
        return FeedbackUpdate(None, v, memory)
    top = sparse_top(grid, largest, like=v)
    dtype = code_dtype(bits_for_levels(top))
    fed_back = passes.feed_back(v, memory, rate, grid, top, dtype)
    codes = make_sparse_codes(fed_back.codes, grid, top, like=v)
    ratio = relative_norm(fed_back.error_squared, squared)
    return FeedbackUpdate(codes, fed_back.residual, fed_back.new_memory, ratio)
