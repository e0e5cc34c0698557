"""Units for readers: each number with the unit that suits its size."""

from dataclasses import dataclass

SPACE = "\u00a0"
"""Between number and unit on pages, where a line must not break there."""


@dataclass(frozen=True)
class Unit:
    """A unit and its size in bytes, seconds or joules."""

    name: str
    size: float


GB = Unit("GB", 1e9)
BYTE_UNITS = (Unit("B", 1), Unit("KB", 1e3), Unit("MB", 1e6), GB, Unit("TB", 1e12))
"""Decimal units, as networks and storage are measured; 1 KB is 1,000 bytes."""
SECOND_UNITS = (Unit("s", 1), Unit("min", 60), Unit("h", 3600), Unit("days", 86400))
JOULE_UNITS = (Unit("J", 1), Unit("kJ", 1e3), Unit("MJ", 1e6))


def unit_for(value: float, units: tuple[Unit, ...]) -> Unit:
    """Return the largest unit of which the value, in three digits, is at least one."""
    return next((u for u in reversed(units) if abs(_round(value / u.size)) >= 1), units[0])


def format_quantity(value: float, units: tuple[Unit, ...], space: str = " ") -> str:
    """Return a value with three digits and its unit, such as 87.3 KB or 5.50 h."""
    unit = unit_for(value, units)
    return f"{_three_digits(value / unit.size, whole=unit.size == 1)}{space}{unit.name}"


def format_bytes(count: float, space: str = " ") -> str:
    """Return a number of bytes with its unit, such as 512 B, 87.3 KB or 1.24 MB."""
    return format_quantity(count, BYTE_UNITS, space)


def format_byte_tick(count: float, space: str = " ") -> str:
    """Return a round number of bytes without trailing zeros, for the tick of an axis: 10 MB."""
    unit = unit_for(count, BYTE_UNITS)
    return f"{count / unit.size:.4g}{space}{unit.name}"


def _round(value: float) -> float:
    return float(f"{value:.3g}")


def _three_digits(value: float, whole: bool) -> str:
    rounded = _round(value)
    if abs(rounded) >= 100:
        return f"{rounded:,.0f}"
    if whole and rounded == int(rounded):
        return f"{rounded:.0f}"
    if abs(rounded) < 1:
        return f"{rounded:.3g}"
    return f"{rounded:.1f}" if abs(rounded) >= 10 else f"{rounded:.2f}"
