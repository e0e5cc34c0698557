"""The curves of a report: which there are, and how a run's line looks."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from aquila.report.colours import places
from aquila.report.page.amounts import MIB
from aquila.report.page.runs import Run
from aquila.report.page.story import LOSS, MEASURES, Measure, measures

DASHES = 4
FADES = 3
"""As many dashes and strengths as page.css names."""


@dataclass(frozen=True)
class Look:
    """A colour of page.css, a dash, and how faint the line is."""

    colour: str
    dash: int
    fade: int

    @property
    def classes(self) -> str:
        """The classes of page.css."""
        return f"line {self.colour} dash{self.dash} fade{self.fade}"


def looks(runs: Sequence[Run]) -> list[Look]:
    """Give every run the colour of its method; those of one colour differ in dashes first."""
    return [
        Look(place.colour, place.of_colour % DASHES, place.of_colour // DASHES % FADES)
        for place in places([run.label for run in runs])
    ]


@dataclass(frozen=True)
class Chart:
    """One figure: `column` against rounds, or, where that can be chosen, against bytes."""

    column: str
    title: str
    unit: str
    log: bool
    by_bytes: bool

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return asdict(self)


def charts(runs: Sequence[Run]) -> list[Chart]:
    """Return the figures that the runs have anything to show in."""
    every = [_quality(measure) for measure in measures(runs)]
    every.sort(key=lambda chart: chart.column != LOSS.key)
    every += [
        Chart("uplink", "Uplink of a round", "MiB", log=True, by_bytes=False),
        Chart("level", "Mean level", "bits", log=False, by_bytes=False),
        Chart("ratio", "Error ratio", "‖ε‖ / ‖v‖", log=False, by_bytes=False),
    ]
    return [c for c in every if any(v is not None for run in runs for v in values(run, c.column))]


def values(run: Run, name: str) -> Sequence[float | None]:
    """Return a column of a run, one value a round."""
    if name == "uplink":
        return [r.uplink_bytes / MIB for r in run.records]
    if name == "level":
        return [r.mean_level for r in run.records]
    if name == "ratio":
        return [r.error_ratio for r in run.records]
    if name == "sent":
        return [sent / MIB for sent in run.sent]
    return MEASURES[name].values(run)


def _quality(measure: Measure) -> Chart:
    title = measure.title.capitalize()
    unit = "share" if measure.higher_is_better else ""
    return Chart(measure.key, title, unit, log=not measure.higher_is_better, by_bytes=True)
