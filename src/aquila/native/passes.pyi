from typing import Any

from numpy.typing import NDArray

def measure(gradient: NDArray[Any], memory: NDArray[Any] | None, /) -> tuple[float, float]: ...
def quantize(
    gradient: NDArray[Any],
    memory: NDArray[Any],
    moved: NDArray[Any],
    codes: NDArray[Any],
    largest: float,
    step: float,
    last: float,
    /,
) -> tuple[float, float]: ...
def lots(lots: NDArray[Any], seed: int, /) -> None: ...
