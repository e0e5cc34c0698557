"""The curves of a report, and the style of each run's line."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from aquila.report.colours import assign_colours
from aquila.report.page.measures import LOSS, Measure, available_measures
from aquila.report.page.runs import PageRun

FRACTION, BYTES = "fraction", "bytes"
"""Units of values that are shown in percent, and as KB, MB or GB."""

DASHES = 4
TONES = 3
"""Numbers of dash patterns and of tones of a colour that page.css defines."""
NOTE = "note:"
"""Prefix of the columns of what methods noted."""


@dataclass(frozen=True)
class LineStyle:
    """A colour of page.css, an index of its dash patterns and one of its tones."""

    colour: str
    dash: int
    tone: int

    @property
    def colour_classes(self) -> str:
        """The CSS classes that set the colour of a run."""
        return f"{self.colour} tone{self.tone}"

    @property
    def classes(self) -> str:
        """The CSS classes of a line."""
        return f"line {self.colour_classes} dash{self.dash}"


def line_styles(runs: Sequence[PageRun]) -> list[LineStyle]:
    """Return the style of each run; runs of one colour differ in dashes and in tone."""
    return [
        LineStyle(a.colour, a.colour_index % DASHES, a.colour_index % TONES)
        for a in assign_colours([run.label for run in runs])
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
    every = [quality_chart(measure, runs) for measure in available_measures(runs)]
    every.sort(key=lambda chart: chart.column != LOSS.key)
    every += [
        Chart("uplink", "Uplink per round", BYTES, log=True, by_cost=False),
        Chart("level", "Mean level", "bits", log=False, by_cost=False),
        Chart("ratio", "Error ratio", "‖ε‖ / ‖v‖", log=False, by_cost=False),
    ]
    notes = dict.fromkeys(name for run in runs for record in run.records for name in record.notes)
    every += [
        Chart(NOTE + name, name.replace("_", " ").capitalize(), "", log=False, by_cost=False)
        for name in notes
    ]
    return [
        c for c in every if any(v is not None for run in runs for v in column_values(run, c.column))
    ]


def quality_chart(measure: Measure, runs: Sequence[PageRun]) -> Chart:
    """Return the figure of a measure against costs."""
    positive = all(value > 0 for run in runs for value in measure.known(run))
    log = positive and not measure.higher_is_better
    unit = FRACTION if measure.is_fraction else ""
    return Chart(measure.key, measure.title.capitalize(), unit, log=log, by_cost=True)


def column_values(run: PageRun, name: str) -> Sequence[float | None]:
    """Return a column of a run, one value per round."""
    if name == "uplink":
        return [r.uplink_bytes for r in run.records]
    if run.members and (name == "level" or name.startswith(NOTE)):
        return _mean_over_seeds(run, name)  # records of several seeds have those of the first
    if name == "level":
        return [r.mean_level for r in run.records]
    if name == "ratio":
        return [r.error_ratio for r in run.records]
    if name.startswith(NOTE):
        return [r.notes.get(name.removeprefix(NOTE)) for r in run.records]
    return Measure(name, name, higher_is_better=True).values(run)


def _mean_over_seeds(run: PageRun, name: str) -> list[float | None]:
    columns = zip(*(column_values(member, name) for member in run.members), strict=False)
    known = [[v for v in values if v is not None] for values in columns][: len(run.records)]
    return [fmean(values) if values else None for values in known]


def column_range(run: PageRun, name: str) -> tuple[list[float | None], list[float | None]]:
    """Return the smallest and largest value over the seeds of a run, one per round."""
    columns = zip(*(column_values(member, name) for member in run.repetitions), strict=False)
    known = [[v for v in values if v is not None] for values in columns][: len(run.records)]
    return [min(v, default=None) for v in known], [max(v, default=None) for v in known]
