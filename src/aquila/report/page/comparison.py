"""Compares runs by the uplink bytes they needed to reach the same quality."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_high, median_low

from aquila.report.page.runs import PageRun


@dataclass(frozen=True)
class Measure:
    """A quality measure: a metric of the records, or the training loss."""

    key: str
    title: str
    higher_is_better: bool

    def values(self, run: PageRun) -> list[float | None]:
        """Return the value after every round; None where it was not measured."""
        found = (r.loss if self.key == "loss" else r.metrics.get(self.key) for r in run.records)
        return [value if value is not None and math.isfinite(value) else None for value in found]

    def last(self, run: PageRun) -> float | None:
        """Return the latest value."""
        return next((v for v in reversed(self.values(run)) if v is not None), None)

    def best(self, run: PageRun) -> float | None:
        """Return the best value."""
        known = [value for value in self.values(run) if value is not None]
        return (max if self.higher_is_better else min)(known) if known else None

    def reached(self, value: float, target: float) -> bool:
        """Return whether a value is at least as good as the target."""
        return value >= target if self.higher_is_better else value <= target

    def format_value(self, value: float | None) -> str:
        """Return a value as text."""
        if value is None:
            return "–"
        return f"{value:.1%}" if self.higher_is_better else f"{value:.4g}"


ACCURACY = Measure("test_accuracy", "test accuracy", higher_is_better=True)
LOCAL_ACCURACY = Measure("local_accuracy", "local accuracy", higher_is_better=True)
PERPLEXITY = Measure("perplexity", "perplexity", higher_is_better=False)
LOSS = Measure("loss", "training loss", higher_is_better=False)
MEASURES = {measure.key: measure for measure in (PERPLEXITY, ACCURACY, LOCAL_ACCURACY, LOSS)}


def available_measures(runs: Sequence[PageRun]) -> list[Measure]:
    """Return the measures that any run has; runs are compared by the first."""
    return [m for m in MEASURES.values() if any(m.best(run) is not None for run in runs)]


ACCURACY_MARGIN, LOSS_MARGIN = 0.01, 0.05
"""Margins below the median accuracy, and above the median loss or perplexity."""


@dataclass(frozen=True)
class Comparison:
    """Uplink bytes to the same quality, for the runs of one problem.

    Attributes:
        runs: The runs of the problem.
        measure: How quality is measured.
        target: A quality that at least half of the runs reached.
        needed_bytes: Uplink bytes to the target by label, for all runs on the page.
        baseline: Of the runs that reached the target, the one with the largest total uplink.
        lead: The AQUILA run that needed least, or the cheapest run if no AQUILA run qualifies.
        cheapest: The run that needed least.
    """

    runs: Sequence[PageRun]
    measure: Measure
    target: float
    needed_bytes: dict[str, int | None]
    baseline: PageRun
    lead: PageRun
    cheapest: PageRun


def compare(all_runs: Sequence[PageRun]) -> Comparison | None:
    """Compare the runs of the most frequent problem; None if they have no measure."""
    problem = Counter(run.problem for run in all_runs).most_common(1)[0][0]
    runs = [run for run in all_runs if run.problem == problem]
    known = available_measures(runs)
    if not known:
        return None
    measure = known[0]
    target = common_target(measure, runs)
    needed = {run.label: bytes_to_target(run, measure, target) for run in all_runs}
    reached_runs = [run for run in runs if needed[run.label] is not None]
    baseline = max(reached_runs, key=lambda run: run.result.uplink_bytes)
    by_bytes = sorted(reached_runs, key=lambda run: needed[run.label] or 0)
    aquila_runs = [run for run in by_bytes if run.is_aquila]
    lead = aquila_runs[0] if aquila_runs and aquila_runs[0] is not baseline else by_bytes[0]
    return Comparison(runs, measure, target, needed, baseline, lead, by_bytes[0])


def common_target(measure: Measure, runs: Sequence[PageRun]) -> float:
    """Return a round number slightly worse than the best value of the median run.

    The margin keeps chance in the last hundredth of an accuracy from deciding.
    """
    best = [value for run in runs if (value := measure.best(run)) is not None]
    if measure.higher_is_better:
        return math.floor(median_low(best) * (1 - ACCURACY_MARGIN) * 1000) / 1000
    middle = median_high(best)
    if middle <= 0:
        return middle
    goal = middle * (1 + LOSS_MARGIN)
    unit = 10.0 ** (math.floor(math.log10(goal)) - 2)
    return float(f"{math.ceil(goal / unit - 1e-9) * unit:.3g}")


def bytes_to_target(run: PageRun, measure: Measure, target: float) -> int | None:
    """Return the uplink bytes until a run first reached the target; None if it never did."""
    pairs = zip(run.cumulative_uplink, measure.values(run), strict=True)
    return next((s for s, v in pairs if v is not None and measure.reached(v, target)), None)
