from typing import Any

from numpy.typing import NDArray

def max_abs(vector: NDArray[Any], /) -> float:
    """Return the largest magnitude, 0 for an empty vector, NaN if a coordinate is NaN."""

def measure(gradient: NDArray[Any], memory: NDArray[Any] | None, /) -> tuple[float, float]:
    """Return the largest magnitude and the sum of squares of gradient - memory."""

def quantize(
    gradient: NDArray[Any],
    memory: NDArray[Any],
    new_memory: NDArray[Any],
    codes: NDArray[Any],
    largest: float,
    step: float,
    last: float,
    /,
) -> tuple[float, float]:
    """Quantize gradient - memory; return the squared norms of what is sent and of the error.

    Args:
        gradient: float vector.
        memory: vector that the codes are relative to.
        new_memory: output, memory plus the decoded codes.
        codes: output, integers of 1, 2 or 4 bytes.
        largest: the grid starts at -largest.
        step: distance between two codes.
        last: largest code.
    """
