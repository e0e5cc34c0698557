from typing import Any

from numpy.typing import NDArray

def kth_largest(v: NDArray[Any], k: int, /) -> float: ...
def codes(
    v: NDArray[Any],
    codes: NDArray[Any],
    step: float,
    lift: float,
    threshold: float,
    top: int,
    /,
) -> None: ...
