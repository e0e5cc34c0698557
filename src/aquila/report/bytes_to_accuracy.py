"""What a run had spent when it was as good as asked: rounds and bytes to a level of accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from aquila.sim.records import Record

WINDOW = 3
"""Evaluations that are averaged, so that one lucky model does not count."""


@dataclass(frozen=True)
class AccuracyCurve:
    """One run: at every evaluation the rounds and bytes spent so far, and the accuracy.

    Of a text it is 1 / perplexity, the geometric mean of the probabilities of the right words.
    """

    rounds: tuple[int, ...]
    uplink_bytes: tuple[int, ...]
    paper_bits: tuple[int, ...]
    accuracy: tuple[float, ...]

    @property
    def smoothed_accuracy(self) -> tuple[float, ...]:
        """Mean of the last evaluations; shorter than the run, since the first ones have none."""
        return tuple(
            sum(self.accuracy[last - WINDOW : last]) / WINDOW
            for last in range(WINDOW, len(self.accuracy) + 1)
        )

    def cost_to_reach(self, level: float) -> "Cost | None":
        """Return what was spent when the mean of the last evaluations first was at the level."""
        for number, mean in enumerate(self.smoothed_accuracy, start=WINDOW - 1):
            if mean >= level:
                return Cost(self.rounds[number], self.uplink_bytes[number], self.paper_bits[number])
        return None


@dataclass(frozen=True)
class Cost:
    """Rounds, real uplink bytes and the papers' bits up to one moment of a run."""

    rounds: int
    uplink_bytes: int
    paper_bits: int


def accuracy_curve(records: Sequence[Record]) -> AccuracyCurve:
    """Return the curve of a run."""
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
