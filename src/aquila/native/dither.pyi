from typing import Any

from numpy.typing import NDArray

def fill(dither: NDArray[Any], seed: int, /) -> None:
    """Fill the vector with numbers in [0, 1) that follow from the seed."""

def codes(
    gradient: NDArray[Any],
    memory: NDArray[Any] | None,
    new_memory: NDArray[Any] | None,
    codes: NDArray[Any],
    step: float,
    seed: int,
    centre: int,
    rate: float,
    /,
) -> tuple[int, float]:
    """Write centre + sign(v) floor(|v| / step + dither), with v = gradient - memory.

    Returns the largest number of steps and the squared norm of v minus the decoded codes. If the
    number exceeds `centre`, the outputs are not complete.

    Args:
        gradient: float vector.
        memory: vector that the codes are relative to; None for zero.
        new_memory: output, memory plus `rate` times the decoded codes; None without a memory.
        codes: output, integers of 1, 2 or 4 bytes.
        step: distance between two codes.
        seed: seed of the dither.
        centre: the code of zero, and the largest number of steps that the codes hold.
        rate: factor on the decoded codes in the new memory.
    """
