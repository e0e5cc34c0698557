"""Rounds and uplink bytes that a run needs to reach a given accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from aquila.sim.records import Record

WINDOW = 3
"""Evaluations to average, so that a single lucky evaluation does not count."""


@dataclass(frozen=True)
class AccuracyCurve:
    """Rounds and bytes spent so far, and the accuracy, at every evaluation of a run.

    The accuracy of a language model is 1 / perplexity: the geometric mean of the probabilities of
    the correct words.
    """

    rounds: tuple[int, ...]
    uplink_bytes: tuple[int, ...]
    paper_bits: tuple[int, ...]
    accuracy: tuple[float, ...]

    @property
    def smoothed_accuracy(self) -> tuple[float, ...]:
        """Moving average of the accuracy; it starts with evaluation number WINDOW."""
        return tuple(
            sum(self.accuracy[last - WINDOW : last]) / WINDOW
            for last in range(WINDOW, len(self.accuracy) + 1)
        )

    def cost_to_reach(self, level: float) -> "CostToTarget | None":
        """Return the cost when the moving average first reaches the level, or None."""
        for number, mean in enumerate(self.smoothed_accuracy, start=WINDOW - 1):
            if mean >= level:
                return CostToTarget(
                    self.rounds[number], self.uplink_bytes[number], self.paper_bits[number]
                )
        return None


@dataclass(frozen=True)
class CostToTarget:
    """Rounds, real uplink bytes and paper bits spent so far."""

    rounds: int
    uplink_bytes: int
    paper_bits: int


def accuracy_curve(records: Sequence[Record]) -> AccuracyCurve:
    """Return the accuracy curve of a run."""
    uplink = list(accumulate(record.uplink_bytes for record in records))
    paper = list(accumulate(record.paper_bits for record in records))
    evaluated = [k for k, record in enumerate(records) if "test_accuracy" in record.metrics]
    return AccuracyCurve(
        tuple(k + 1 for k in evaluated),
        tuple(uplink[k] for k in evaluated),
        tuple(paper[k] for k in evaluated),
        tuple(_accuracy(records[k]) for k in evaluated),
    )


def _accuracy(record: Record) -> float:
    perplexity = record.metrics.get("perplexity")
    return record.metrics["test_accuracy"] if perplexity is None else 1 / perplexity
