"""Formats numbers for readers."""

from collections.abc import Iterable

from aquila.report.units import MIB

DECIMALS = ((1000.0, 0), (100.0, 1), (10.0, 2), (1.0, 3))


def format_size(value: float) -> str:
    """Return a size with about four significant digits."""
    digits = next((digits for limit, digits in DECIMALS if value >= limit), None)
    return f"{value:.4g}" if digits is None else f"{value:,.{digits}f}"


def format_mib(count: int) -> str:
    """Return bytes as MiB, with a non-breaking space."""
    return f"{format_size(count / MIB)}\u00a0MiB"


def format_ratio(ratio: float) -> str:
    """Return a ratio, such as 0.96, 2.3 or 31."""
    return f"{ratio:.2g}" if ratio < 1 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"


def format_column(values: Iterable[float]) -> list[str]:
    """Return sizes with the same number of decimals, for a table column."""
    sizes = list(values)
    largest = max(sizes, default=0.0)
    digits = 1 if largest >= 100 else 3 if largest >= 0.1 else 5
    return [f"{value:,.{digits}f}" for value in sizes]
