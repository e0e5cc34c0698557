"""Formats numbers for readers."""

from aquila.report import units


def format_bytes(count: float) -> str:
    """Return bytes with their unit and a non-breaking space."""
    return units.format_bytes(count, units.SPACE)


def format_ratio(ratio: float) -> str:
    """Return a ratio, such as 0.96, 2.3 or 31."""
    return f"{ratio:.2g}" if ratio < 1 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
