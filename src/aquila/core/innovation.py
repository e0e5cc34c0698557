"""What a gradient adds to a memory: measured in one pass, quantized in a second, never stored."""

import math
from dataclasses import dataclass

from aquila.core.packet import MAX_BITS, Codes, Dense
from aquila.core.passes import passes_for
from aquila.core.quantize import codes_of, range_grid
from aquila.core.vector import Vector


@dataclass(frozen=True, eq=False)
class Step:
    """What would be sent, the memory once it has been, and the squared norms of dq and v - dq."""

    upload: Codes | Dense
    memory: Vector
    sent: float
    error: float


@dataclass(frozen=True, eq=False)
class Innovation:
    """The difference v = gradient - memory, known by R = max |v| and ||v||²."""

    gradient: Vector
    memory: Vector
    largest: float
    squared: float

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.gradient.numel()

    def midrise(self, bits: int) -> Step | None:
        """Quantize as `midrise(v, bits)` does, up to 31 bits; None where v has no grid."""
        grid = range_grid(self.largest, bits, self.gradient.dtype)
        if grid is None:
            return None
        passes = passes_for(self.gradient, self.memory)
        psi, moved, sent, error = passes.quantize(self.gradient, self.memory, grid)
        return Step(codes_of(grid, psi, bits, like=self.memory), moved, sent, error)

    def midrise_or_dense(self, bits: int) -> Step | None:
        """Quantize, or send v itself once that costs no more: from 32 bits on."""
        if bits < MAX_BITS:
            return self.midrise(bits)
        if self.largest == 0:
            return None
        v = self.gradient - self.memory
        return Step(Dense(v), self.memory + v, self.squared, 0.0)


def measure(gradient: Vector, memory: Vector) -> Innovation:
    """Return the innovation of a gradient over a memory."""
    largest, squared = passes_for(gradient, memory).measure(gradient, memory)
    return Innovation(gradient, memory, largest, squared)


def aquila_level(v: Innovation, tightness: float = 1.0) -> int:
    """AQUILA's level b* = floor(log2(R sqrt(d) / ||v|| + 1)), Theorem 1; 0 for the zero vector.

    `tightness` 7 keeps the term 6 (tau R)^2 d that the paper's proof of its Lemma 1 replaces by a
    constant; its bound is then least at tau R sqrt(d) = ||v|| / 7.
    """
    norm = math.sqrt(v.squared)
    if norm == 0:
        return 0
    ratio = tightness * v.largest * math.sqrt(v.dimension) / norm
    if not math.isfinite(ratio):
        raise ValueError(f"a vector of squared norm {v.squared} has no level; it must be finite")
    _, exponent = math.frexp(ratio + 1)  # exact, where a logarithm is as good as its library
    return max(exponent - 1, 1)  # the ratio is at least 1, but for a flat v its rounding may not be
