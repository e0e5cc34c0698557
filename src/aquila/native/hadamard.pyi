from typing import Any

from numpy.typing import NDArray

def transform(v: NDArray[Any], /) -> None:
    """Replace v by its Walsh-Hadamard transform, without its scale.

    v is a contiguous float32 or float64 vector. Its length is a power of two.
    """
