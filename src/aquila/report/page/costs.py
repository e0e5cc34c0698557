"""The costs of the runs of a report, each in one unit for all runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from aquila.report.costs import BYTES, SIMULATED_COSTS, Cost, Unit
from aquila.report.page.comparison import Measure
from aquila.report.page.runs import PageRun
from aquila.report.units import MIB


@dataclass(frozen=True)
class PageCost:
    """A cost in the unit that the page shows."""

    cost: Cost
    unit: Unit

    @property
    def key(self) -> str:
        """The name of the column in the data of the page."""
        return self.cost.key

    @property
    def label(self) -> str:
        """Name and unit."""
        return f"{self.cost.title}, {self.unit.name}"

    @property
    def heading(self) -> str:
        """Short name and unit, for a column of a table."""
        return f"{self.cost.short_title} {self.unit.name}"

    def values(self, run: PageRun) -> list[float | None]:
        """Return the total after every round, None for a run without this cost."""
        totals = self.cost.totals(run.records)
        if totals is None:
            return [None] * len(run.records)
        return [total / self.unit.size for total in totals]

    def to_target(self, run: PageRun, measure: Measure, target: float) -> float | None:
        """Return the cost until a run first reached the target; None if it never did."""
        pairs = zip(self.values(run), measure.values(run), strict=True)
        return next((c for c, v in pairs if v is not None and measure.reached(v, target)), None)

    def to_dict(self) -> dict[str, str]:
        """Return what the script of the page needs."""
        return {"key": self.key, "label": self.label, "unit": self.unit.name}


UPLINK = PageCost(BYTES, Unit("MiB", MIB))


def available_costs(runs: Sequence[PageRun]) -> list[PageCost]:
    """Return the uplink, and the simulated costs that any run has."""
    costs = [UPLINK]
    for cost in SIMULATED_COSTS:
        totals = [t for run in runs if (t := cost.total(run.records)) is not None]
        if totals:
            costs.append(PageCost(cost, cost.unit_for(max(totals))))
    return costs
