from typing import Any

import numpy as np
from numpy.typing import NDArray

def transform(v: NDArray[Any], length: int, /) -> None:
    """Replace each part of this length by its Walsh-Hadamard transform, without its scale.

    v is a contiguous float32 or float64 vector. The length is a power of two.
    """

def squares(v: NDArray[Any], sums: NDArray[Any], /) -> None:
    """Write the sum of squares of each part of v, all of the same power of two as length.

    Sums have the type of v. Squares are added in pairs, so that all hardware gives the same bits.
    """

def flip_signs(v: NDArray[Any], bits: NDArray[np.uint8], /) -> None:
    """Flip the sign of each float whose bit is 1, the highest bit of each byte first."""

def by_columns(rows: NDArray[Any], columns: NDArray[Any], side: int, /) -> None:
    """Write the columns of a square that `rows` begins with, then the rest of `rows`.

    Both are contiguous float32 or float64 vectors of the same type and length.
    """
