"""When a run ends before its last round, and which of its models is the best so far."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aquila.runtime.options import RunOptions
from aquila.sim.records import Record

MAIN_METRICS = {
    "perplexity": False,
    "test_accuracy": True,
    "accuracy": True,
    "test_loss": False,
    "loss": False,
}
"""Metrics that can be the main one, most important first, and whether a higher value is better."""


def main_metric(metrics: Mapping[str, float]) -> str | None:
    """Return the name of the main metric, or None if there is none."""
    return next((name for name in MAIN_METRICS if name in metrics), None)


@dataclass(frozen=True)
class BestRound:
    """The round with the best value of the main metric so far."""

    round: int
    metric: str
    value: float


class StoppingRule:
    """Follows the main metric of a run: the best round so far, and whether the run should end.

    The main metric is the first of `MAIN_METRICS` that the first evaluation returns. Rounds
    without an evaluation change nothing. `resume` adds the rounds of a resumed run, so that an
    interrupted run ends in the same round as an uninterrupted one.
    """

    def __init__(self, options: RunOptions, evaluates: bool) -> None:
        self._stop_at, self._patience = options.stop_at, options.patience
        if (self._stop_at or self._patience) and not evaluates:
            raise ValueError("stop_at and patience need metrics: pass evaluate")
        self.best: BestRound | None = None
        self._evaluations_since_best = 0

    def resume(self, records: Iterable[Record]) -> None:
        """Add the rounds of a resumed run."""
        for record in records:
            self.add(record)

    def add(self, record: Record) -> bool:
        """Add a round; return whether it is the best so far."""
        if not record.metrics:
            return False
        metric = self._main_metric(record) if self.best is None else self.best.metric
        value = None if metric is None else record.metrics.get(metric)
        if metric is None or value is None or not self._improves(metric, value):
            self._evaluations_since_best += 1
            return False
        self.best = BestRound(record.round, metric, value)
        self._evaluations_since_best = 0
        return True

    @property
    def reason(self) -> str | None:
        """Why the run should end now, or None."""
        best = self.best
        if best is None:
            return None
        if self._stop_at and self._reaches(best.metric, best.value, self._stop_at):
            return f"{best.metric} reached {best.value:.6g} after {_rounds(best)}"
        if self._patience and self._evaluations_since_best >= self._patience:
            return (
                f"{best.metric} has not improved in {self._evaluations_since_best} evaluations; "
                f"the best was {best.value:.6g} after {_rounds(best)}"
            )
        return None

    def _main_metric(self, record: Record) -> str | None:
        found = main_metric(record.metrics)
        if found is None and (self._stop_at or self._patience):
            raise ValueError(
                f"stop_at and patience need one of the metrics {', '.join(MAIN_METRICS)}, but "
                f"evaluate returned {', '.join(record.metrics)}"
            )
        if found is not None and MAIN_METRICS[found] and self._stop_at > 1:
            raise ValueError(
                f"stop_at is {self._stop_at:g}, but {found} is at most 1; write 90 % as 0.9"
            )
        return found

    def _improves(self, metric: str, value: float) -> bool:
        if self.best is None:
            return True
        return value != self.best.value and self._reaches(metric, value, self.best.value)

    def _reaches(self, metric: str, value: float, target: float) -> bool:
        return value >= target if MAIN_METRICS[metric] else value <= target


def _rounds(best: BestRound) -> str:
    count = best.round + 1  # rounds are numbered from 0
    return f"{count} round{'s' if count > 1 else ''}"
