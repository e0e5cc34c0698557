from typing import Any

from numpy.typing import NDArray

def add_sparse(total: NDArray[Any], positions: NDArray[Any], values: NDArray[Any], /) -> None:
    """Add values to the coordinates of a float64 sum at positions of 64 bits."""

def squared_norm(positions: NDArray[Any], values: NDArray[Any], /) -> float:
    """Return the sum of squares of values at increasing positions, in the order of lanes."""

def add_codes(
    total: NDArray[Any], codes: NDArray[Any], low: float, step: float, is_double: bool, /
) -> None:
    """Add low + step * codes to a float64 sum; computed in float64 if `is_double`, else float32."""

def squared_norm_of_codes(
    codes: NDArray[Any], low: float, step: float, is_double: bool, /
) -> float:
    """Return the sum of squares of low + step * codes, in the order of lanes."""
