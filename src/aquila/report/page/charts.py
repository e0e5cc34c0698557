"""The curves of a report, and the style of each run's line."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from aquila.report.colours import assign_colours
from aquila.report.page.comparison import LOSS, MEASURES, Measure, available_measures
from aquila.report.page.runs import PageRun
from aquila.report.units import MIB

FRACTION = "fraction"
"""Unit of values that are shown in percent."""

DASHES = 4
FADES = 3
"""Numbers of dash patterns and opacities that page.css defines."""


@dataclass(frozen=True)
class LineStyle:
    """A colour of page.css, an index of its dash patterns and one of its opacities."""

    colour: str
    dash: int
    fade: int

    @property
    def classes(self) -> str:
        """The CSS classes."""
        return f"line {self.colour} dash{self.dash} fade{self.fade}"


def line_styles(runs: Sequence[PageRun]) -> list[LineStyle]:
    """Return the style of each run; runs of one colour differ in dashes, then in opacity."""
    return [
        LineStyle(
            assigned.colour, assigned.colour_index % DASHES, assigned.colour_index // DASHES % FADES
        )
        for assigned in assign_colours([run.label for run in runs])
    ]


@dataclass(frozen=True)
class Chart:
    """One figure: `column` against rounds, or against a cost if `by_cost`."""

    column: str
    title: str
    unit: str
    log: bool
    by_cost: bool

    def to_dict(self) -> dict[str, object]:
        """Return the fields as plain values."""
        return asdict(self)


def charts_for(runs: Sequence[PageRun]) -> list[Chart]:
    """Return the figures that the runs have data for."""
    every = [_quality_chart(measure) for measure in available_measures(runs)]
    every.sort(key=lambda chart: chart.column != LOSS.key)
    every += [
        Chart("uplink", "Uplink per round", "MiB", log=True, by_cost=False),
        Chart("level", "Mean level", "bits", log=False, by_cost=False),
        Chart("ratio", "Error ratio", "‖ε‖ / ‖v‖", log=False, by_cost=False),
    ]
    return [
        c for c in every if any(v is not None for run in runs for v in column_values(run, c.column))
    ]


def column_values(run: PageRun, name: str) -> Sequence[float | None]:
    """Return a column of a run, one value per round."""
    if name == "uplink":
        return [r.uplink_bytes / MIB for r in run.records]
    if name == "level":
        return [r.mean_level for r in run.records]
    if name == "ratio":
        return [r.error_ratio for r in run.records]
    return MEASURES[name].values(run)


def _quality_chart(measure: Measure) -> Chart:
    title = measure.title.capitalize()
    unit = FRACTION if measure.higher_is_better else ""
    return Chart(measure.key, title, unit, log=not measure.higher_is_better, by_cost=True)
