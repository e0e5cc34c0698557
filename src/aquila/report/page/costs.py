"""The costs of the runs of a report: bytes, simulated time and energy, and real time."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from aquila.report.costs import BOTH_WAYS, BYTES, SIMULATED_COSTS, Cost
from aquila.report.page.measures import Measure
from aquila.report.page.runs import PageRun
from aquila.report.units import BYTE_UNITS, SECOND_UNITS, SPACE, Unit

REAL_TIME = Cost("real", (), "real time", SECOND_UNITS)
"""Wall-clock time of the simulation; it is not part of the records."""


@dataclass(frozen=True)
class PageCost:
    """A cost, and the unit of its axis for all runs."""

    cost: Cost
    unit: Unit

    @property
    def key(self) -> str:
        """The name of the column in the data of the page."""
        return self.cost.key

    @property
    def label(self) -> str:
        """Name for an axis. Ticks of bytes have their own units."""
        is_bytes = self.cost.units is BYTE_UNITS
        return self.cost.title if is_bytes else f"{self.cost.title}, {self.unit.name}"

    def values(self, run: PageRun) -> list[float | None]:
        """Return the total after every round, None for a run without this cost."""
        if self.cost is REAL_TIME:
            totals = list(accumulate(run.round_seconds)) or None
        else:
            totals = self.cost.totals(run.records)
        if totals is None or len(totals) != len(run.records):
            return [None] * len(run.records)
        return [*totals]

    def total(self, run: PageRun) -> float | None:
        """Return the cost of the whole run; None if it is unknown."""
        return self.values(run)[-1]

    def to_target(self, run: PageRun, measure: Measure, target: float) -> float | None:
        """Return the cost until a run first reached the target; None if it never did."""
        pairs = zip(self.values(run), measure.values(run), strict=True)
        return next((c for c, v in pairs if v is not None and measure.reached(v, target)), None)

    def format(self, value: float | None) -> str:
        """Return a value with its unit."""
        return "–" if value is None else self.cost.format_total(value, SPACE)

    def to_dict(self) -> dict[str, object]:
        """Return what the script of the page needs."""
        return {
            "key": self.key,
            "title": self.cost.title,
            "label": self.label,
            "units": [[unit.name, unit.size] for unit in self.cost.units],
            "axis_size": 1 if self.cost.units is BYTE_UNITS else self.unit.size,
        }


UPLINK = PageCost(BYTES, BYTE_UNITS[0])


def available_costs(runs: Sequence[PageRun]) -> list[PageCost]:
    """Return the costs that any run has, the uplink first."""
    costs = [UPLINK, PageCost(BOTH_WAYS, BYTE_UNITS[0])]
    for cost in (*SIMULATED_COSTS, REAL_TIME):
        plain = PageCost(cost, cost.units[0])
        totals = [total for run in runs if (total := plain.total(run)) is not None]
        if totals:
            costs.append(PageCost(cost, cost.unit_for(max(totals))))
    return costs
