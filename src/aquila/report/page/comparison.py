"""Compares runs by the uplink bytes they needed to reach the same quality."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_high, median_low

from aquila.report.page.measures import Measure, available_measures
from aquila.report.page.runs import PageRun

DENSE_BITS = 32
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
        dense: The run with uncompressed uploads and the largest uplink, if there is one.
    """

    runs: Sequence[PageRun]
    measure: Measure
    target: float
    needed_bytes: dict[str, int | None]
    baseline: PageRun
    lead: PageRun
    cheapest: PageRun
    dense: PageRun | None = None

    @property
    def reference(self) -> PageRun:
        """The run that others are compared with: the dense one, or the baseline."""
        return self.dense or self.baseline


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
    baseline = max(
        reached_runs, key=lambda run: (run.result.uplink_bytes, -(needed[run.label] or 0))
    )
    by_bytes = sorted(reached_runs, key=lambda run: needed[run.label] or 0)
    aquila_runs = [run for run in by_bytes if run.is_aquila]
    lead = aquila_runs[0] if aquila_runs and aquila_runs[0] is not baseline else by_bytes[0]
    return Comparison(
        runs,
        measure,
        target,
        needed,
        baseline,
        lead,
        by_bytes[0],
        _dense_run(runs, measure, needed),
    )


def common_target(measure: Measure, runs: Sequence[PageRun]) -> float:
    """Return a round number slightly worse than the best value of the median run.

    The margin keeps chance in the last hundredth of an accuracy from deciding.
    """
    best = [value for run in runs if (value := measure.best(run)) is not None]
    if measure.is_fraction:
        return math.floor(median_low(best) * (1 - ACCURACY_MARGIN) * 1000) / 1000
    higher = measure.higher_is_better
    middle = (median_low if higher else median_high)(best)
    if middle <= 0:
        return middle
    goal = middle * (1 - ACCURACY_MARGIN if higher else 1 + LOSS_MARGIN)
    unit = 10.0 ** (math.floor(math.log10(goal)) - 2)
    steps = math.floor(goal / unit + 1e-9) if higher else math.ceil(goal / unit - 1e-9)
    return float(f"{steps * unit:.3g}")


def bytes_to_target(run: PageRun, measure: Measure, target: float) -> int | None:
    """Return the uplink bytes until a run first reached the target; None if it never did."""
    pairs = zip(run.cumulative_uplink, measure.values(run), strict=True)
    return next((s for s, v in pairs if v is not None and measure.reached(v, target)), None)


def _dense_run(
    runs: Sequence[PageRun], measure: Measure, needed: Mapping[str, int | None]
) -> PageRun | None:
    """Return the best of the runs whose uploads are all of 32 bits: the first at the target."""
    dense = [
        run
        for run in runs
        if measure.known(run)
        and {level for r in run.records for level in r.levels.values()} == {DENSE_BITS}
    ]
    return min(
        dense,
        key=lambda run: math.inf if (count := needed[run.label]) is None else count,
        default=None,
    )
