"""Quality measures of runs: the training loss, and every metric of the records."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aquila.report.labelled_run import FINAL_EVALUATIONS
from aquila.report.page.runs import PageRun

HIGHER_IS_BETTER = (
    "acc", "auc", "bleu", "dice", "f1", "iou", "precision", "psnr", "r2", "recall", "rouge",
    "score", "ssim", "top",
)  # fmt: skip
"""Parts of the names of metrics whose higher values are better; for others, lower ones are."""


@dataclass(frozen=True)
class Measure:
    """A quality measure: a metric of the records, or the training loss.

    Attributes:
        key: Name of the metric.
        title: Name for readers.
        higher_is_better: Whether higher values are better.
        is_fraction: Whether values lie between 0 and 1 and are shown in percent.
    """

    key: str
    title: str
    higher_is_better: bool
    is_fraction: bool = False

    def values(self, run: PageRun) -> list[float | None]:
        """Return the value after every round; None where it was not measured."""
        found = (r.loss if self.key == "loss" else r.metrics.get(self.key) for r in run.records)
        return [value if value is not None and math.isfinite(value) else None for value in found]

    def known(self, run: PageRun) -> list[float]:
        """Return the values that were measured."""
        return [value for value in self.values(run) if value is not None]

    def last(self, run: PageRun) -> float | None:
        """Return the latest value."""
        return next(reversed(self.known(run)), None)

    def final(self, run: PageRun) -> float | None:
        """Return the mean of the last five values."""
        last = self.known(run)[-FINAL_EVALUATIONS:]
        return sum(last) / len(last) if last else None

    def best(self, run: PageRun) -> float | None:
        """Return the best value."""
        known = self.known(run)
        return (max if self.higher_is_better else min)(known) if known else None

    def reached(self, value: float, target: float) -> bool:
        """Return whether a value is at least as good as the target."""
        return value >= target if self.higher_is_better else value <= target

    def format_value(self, value: float | None) -> str:
        """Return a value as text."""
        if value is None:
            return "–"
        return f"{value:.1%}" if self.is_fraction else f"{value:.4g}"


PERPLEXITY = Measure("perplexity", "perplexity", higher_is_better=False)
ACCURACY = Measure("test_accuracy", "test accuracy", higher_is_better=True, is_fraction=True)
LOCAL_ACCURACY = Measure(
    "local_accuracy", "local accuracy", higher_is_better=True, is_fraction=True
)
LOSS = Measure("loss", "training loss", higher_is_better=False)
NAMED = (PERPLEXITY, ACCURACY, LOCAL_ACCURACY)


def available_measures(runs: Sequence[PageRun]) -> list[Measure]:
    """Return the measures that any run has; runs are compared by the first."""
    names = dict.fromkeys(name for run in runs for record in run.records for name in record.metrics)
    measures = [measure for measure in NAMED if measure.key in names]
    known = {measure.key for measure in (*NAMED, LOSS)}
    measures += [_custom_measure(name, runs) for name in names if name not in known]
    return [m for m in (*measures, LOSS) if any(m.known(run) for run in runs)]


def _custom_measure(name: str, runs: Sequence[PageRun]) -> Measure:
    higher = any(part in name.lower() for part in HIGHER_IS_BETTER)
    plain = Measure(name, name.replace("_", " "), higher)
    in_range = all(0 <= value <= 1 for run in runs for value in plain.known(run))
    return Measure(name, plain.title, higher, is_fraction=higher and in_range)
