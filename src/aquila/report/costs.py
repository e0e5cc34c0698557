"""What training costs: bytes, simulated time and energy, with units for readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from aquila.report.units import (
    BYTE_UNITS,
    JOULE_UNITS,
    SECOND_UNITS,
    Unit,
    format_quantity,
    unit_for,
)

if TYPE_CHECKING:
    from aquila.sim.records import Record


@dataclass(frozen=True)
class Cost:
    """A number of the records that adds up over the rounds.

    Args:
        key: How the report page identifies the cost.
        fields: Names of the fields of a record that are added.
        title: Name of the cost for readers.
        units: Units from the smallest to the largest.
    """

    key: str
    fields: tuple[str, ...]
    title: str
    units: tuple[Unit, ...]

    @property
    def short_title(self) -> str:
        """The last word of the title, for narrow columns."""
        return self.title.split()[-1]

    def of_round(self, record: Record) -> float | None:
        """Return the cost of one round; None if the record does not have it."""
        values = [getattr(record, name) for name in self.fields]
        return None if None in values else sum(values)

    def totals(self, records: Sequence[Record]) -> list[float] | None:
        """Return the total after every round; None if the records do not have the cost."""
        values = [self.of_round(record) for record in records]
        known = [value for value in values if value is not None]
        return list(accumulate(known)) if len(known) == len(values) else None

    def total(self, records: Sequence[Record]) -> float | None:
        """Return the total of a run; None if its records do not have the cost."""
        totals = self.totals(records)
        return totals[-1] if totals else None

    def unit_for(self, largest: float) -> Unit:
        """Return the unit for an axis up to this number."""
        return unit_for(largest, self.units)

    def format_total(self, value: float, space: str = " ") -> str:
        """Return a total with its unit, such as 3.20 h."""
        return format_quantity(value, self.units, space)


BYTES = Cost("bytes", ("uplink_bytes",), "uplink", BYTE_UNITS)
BOTH_WAYS = Cost("both", ("uplink_bytes", "downlink_bytes"), "uplink + downlink", BYTE_UNITS)
TIME = Cost("time", ("seconds",), "simulated time", SECOND_UNITS)
ENERGY = Cost("energy", ("joules",), "energy", JOULE_UNITS)
SIMULATED_COSTS = (TIME, ENERGY)
"""Costs that only runs with a link model have."""
