"""The few runs that a page with many runs shows first."""

from collections.abc import Sequence

from aquila.report.page.comparison import Comparison
from aquila.report.page.runs import PageRun

MANY_RUNS = 8
"""Pages with more runs show some of them first."""
FEATURED_RUNS = 6


def featured_runs(runs: Sequence[PageRun], comparison: Comparison | None) -> set[str]:
    """Return the labels of the runs to show first: all, unless there are many.

    The first are the runs of the headline, the best quality and the cheapest runs to the target.
    """
    if len(runs) <= MANY_RUNS or comparison is None:
        return {run.label for run in runs}
    measure, needed = comparison.measure, comparison.needed_bytes
    sign = 1 if measure.higher_is_better else -1
    judged = [run for run in comparison.runs if measure.known(run)]
    best = max(judged, key=lambda run: sign * (measure.final(run) or 0))
    reached = [run for run in comparison.runs if needed[run.label] is not None]
    by_bytes = sorted(reached, key=lambda run: needed[run.label] or 0)
    first = [comparison.lead, comparison.cheapest, comparison.reference, best]
    first += [run for run in comparison.runs if run.label == "aquila"]
    labels = dict.fromkeys(run.label for run in (*first, *by_bytes, *comparison.runs))
    return set(list(labels)[:FEATURED_RUNS])
