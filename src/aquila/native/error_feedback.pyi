from typing import Any

from numpy.typing import NDArray

def accumulate(
    error: NDArray[Any],
    gradient: NDArray[Any],
    memory: NDArray[Any],
    total: NDArray[Any],
    k: int,
    /,
) -> tuple[float, float, float]:
    """Write error + (gradient - memory) to `total`.

    Returns its largest magnitude, its sum of squares and its k-th largest magnitude.
    """

def feed_back(
    memory: NDArray[Any],
    v: NDArray[Any],
    new_memory: NDArray[Any],
    codes: NDArray[Any],
    step: float,
    lift: float,
    threshold: float,
    top: int,
    rate: float,
    /,
) -> float:
    """Write the codes of v, and subtract the decoded codes from v; return the new ||v||².

    Args:
        memory: float vector.
        v: input, and output of what the codes do not send.
        new_memory: output, memory plus `rate` times the decoded codes.
        codes: output, integers of 1, 2 or 4 bytes.
        step: distance between two codes.
        lift: added before rounding down.
        threshold: a coordinate of exactly this magnitude becomes 1 or -1.
        top: largest magnitude in steps, and the code of zero.
        rate: factor on the decoded codes in the new memory.
    """
