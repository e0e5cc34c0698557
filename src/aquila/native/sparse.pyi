from typing import Any

from numpy.typing import NDArray

def kth_largest(v: NDArray[Any], k: int, /) -> float:
    """Return the k-th largest magnitude."""

def codes(
    v: NDArray[Any],
    codes: NDArray[Any],
    step: float,
    lift: float,
    threshold: float,
    top: int,
    /,
) -> None:
    """Write the code of every coordinate: top + sign(v) floor(|v| / step + lift).

    Args:
        v: float vector.
        codes: output, integers of 1, 2 or 4 bytes.
        step: distance between two codes.
        lift: added before rounding down.
        threshold: a coordinate of exactly this magnitude becomes 1 or -1.
        top: largest magnitude in steps, and the code of zero.
    """
