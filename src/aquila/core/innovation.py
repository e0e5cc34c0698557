"""Innovations, gradient minus memory: measured in one pass, quantized in a second, never stored."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from aquila.core.packet import MAX_BITS, Codes, Dense
from aquila.core.passes import passes_for
from aquila.core.quantize import make_codes, range_grid
from aquila.core.vector import Vector


@dataclass(frozen=True, eq=False)
class CandidateUpload:
    """A possible upload, the memory after it, and the squared norms of dq and v - dq.

    `make_upload` returns the upload. Most candidates of a lazy method are never sent.
    """

    make_upload: Callable[[], Codes | Dense]
    memory: Vector
    sent_squared: float
    error_squared: float

    @property
    def upload(self) -> Codes | Dense:
        """The upload, made at each access."""
        return self.make_upload()


@dataclass(frozen=True, eq=False)
class Innovation:
    """The difference v = gradient - memory, described by R = max |v| and ||v||²."""

    gradient: Vector
    memory: Vector
    max_abs: float
    squared_norm: float

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.gradient.numel()

    def midrise(self, bits: int) -> CandidateUpload | None:
        """Quantize like `midrise(v, bits)`, up to 31 bits; None if v has no grid."""
        grid = range_grid(self.max_abs, bits, self.gradient.dtype)
        if grid is None:
            return None
        passes = passes_for(self.gradient, self.memory)
        psi, new_memory, sent, error = passes.quantize(self.gradient, self.memory, grid)
        upload = partial(make_codes, grid, psi, bits, self.memory)
        return CandidateUpload(upload, new_memory, sent, error)

    def midrise_or_dense(self, bits: int) -> CandidateUpload | None:
        """Quantize; from 32 bits on send v itself, because that costs no more."""
        if bits < MAX_BITS:
            return self.midrise(bits)
        if self.max_abs == 0:
            return None
        v = self.gradient - self.memory
        return CandidateUpload(partial(Dense, v), self.memory + v, self.squared_norm, 0.0)


def measure(gradient: Vector, memory: Vector) -> Innovation:
    """Return the innovation of a gradient with respect to a memory."""
    largest, squared = passes_for(gradient, memory).measure(gradient, memory)
    return Innovation(gradient, memory, largest, squared)


def aquila_level(v: Innovation, tightness: float = 1.0) -> int:
    """Return AQUILA's level b* = floor(log2(R sqrt(d) / ||v|| + 1)), Theorem 1; 0 if v is zero.

    With `tightness` 7 the level keeps the term 6 (tau R)^2 d, which the paper's proof of Lemma 1
    replaces by a constant. The bound is then smallest at tau R sqrt(d) = ||v|| / 7.
    """
    norm = math.sqrt(v.squared_norm)
    if norm == 0:
        return 0
    ratio = tightness * v.max_abs * math.sqrt(v.dimension) / norm
    if not math.isfinite(ratio):
        raise ValueError(
            f"a vector of squared norm {v.squared_norm} has no level; the norm must be finite"
        )
    _, exponent = math.frexp(ratio + 1)  # exact on every platform, unlike math.log2
    return max(exponent - 1, 1)  # if all |v_i| are equal, the ratio 1 may round to less
