"""What training costs: uplink bytes, simulated time and energy, with units for readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from aquila.report.units import GIB, MIB

if TYPE_CHECKING:
    from aquila.sim.records import Record


@dataclass(frozen=True)
class Unit:
    """A unit and its size in bytes, seconds or joules."""

    name: str
    size: float


@dataclass(frozen=True)
class Cost:
    """A number of the records that adds up over the rounds.

    Args:
        key: How the report page identifies the cost.
        field: Name of the field of a record.
        title: Name of the cost for readers.
        units: Units from the smallest to the largest.
    """

    key: str
    field: str
    title: str
    units: tuple[Unit, ...]

    @property
    def short_title(self) -> str:
        """The last word of the title, for narrow columns."""
        return self.title.split()[-1]

    def totals(self, records: Sequence[Record]) -> list[float] | None:
        """Return the total after every round; None if the records do not have the cost."""
        values = [getattr(record, self.field) for record in records]
        return None if None in values else list(accumulate(values))

    def total(self, records: Sequence[Record]) -> float | None:
        """Return the total of a run; None if its records do not have the cost."""
        totals = self.totals(records)
        return totals[-1] if totals else None

    def unit_for(self, largest: float) -> Unit:
        """Return the largest unit that is not larger than the number, or the smallest unit."""
        return next((u for u in reversed(self.units) if largest >= u.size), self.units[0])

    def format_total(self, value: float) -> str:
        """Return a total with its unit, such as 3.2 h."""
        unit = self.unit_for(value)
        return f"{value / unit.size:.3g} {unit.name}"


BYTES = Cost("bytes", "uplink_bytes", "uplink", (Unit("MiB", MIB), Unit("GiB", GIB)))
TIME = Cost(
    "time",
    "seconds",
    "simulated time",
    (Unit("s", 1), Unit("min", 60), Unit("h", 3600), Unit("days", 86400)),
)
ENERGY = Cost("energy", "joules", "energy", (Unit("J", 1), Unit("kJ", 1e3), Unit("MJ", 1e6)))
SIMULATED_COSTS = (TIME, ENERGY)
"""Costs that only runs with a link model have."""
