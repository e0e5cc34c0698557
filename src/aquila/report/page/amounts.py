"""Numbers as people read them."""

from collections.abc import Iterable

MIB = 2**20
GIB = 2**30
KNOWN_DIGITS = ((1000.0, 0), (100.0, 1), (10.0, 2), (1.0, 3))


def amount(value: float) -> str:
    """Return a size with about four digits that count."""
    digits = next((digits for limit, digits in KNOWN_DIGITS if value >= limit), None)
    return f"{value:.4g}" if digits is None else f"{value:,.{digits}f}"


def mib(count: int) -> str:
    """Return bytes as MiB, in one word that no line break parts."""
    return f"{amount(count / MIB)}\u00a0MiB"


def times(ratio: float) -> str:
    """Return a ratio: 0.96, 2.3 or 31."""
    return f"{ratio:.2g}" if ratio < 1 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"


def column(values: Iterable[float]) -> list[str]:
    """Return sizes with the same number of decimals, so that they line up."""
    listed = list(values)
    largest = max(listed, default=0.0)
    digits = 1 if largest >= 100 else 3 if largest >= 0.1 else 5
    return [f"{value:,.{digits}f}" for value in listed]
