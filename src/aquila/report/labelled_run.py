"""One run as figures and tables see it: its label, its records and their totals."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from aquila.sim.records import Record

MIN_ROUNDS_FOR_TREND = 10
"""Rounds after which the loss should have decreased."""
FINAL_EVALUATIONS = 5
"""Number of evaluations whose mean is the quality at the end of a run."""


@dataclass(frozen=True)
class LabelledRun:
    """Label and records of one run; `stopped` if it ended before its last round."""

    label: str
    records: Sequence[Record]
    stopped: bool = False

    @cached_property
    def uplink_bytes(self) -> int:
        """Total bytes sent by the devices."""
        return sum(r.uplink_bytes for r in self.records)

    @cached_property
    def downlink_bytes(self) -> int:
        """Total bytes sent by the server."""
        return sum(r.downlink_bytes for r in self.records)

    @cached_property
    def paper_bits(self) -> int:
        """Total bits per coordinate × coordinates, as papers count the uplink."""
        return sum(r.paper_bits for r in self.records)

    @cached_property
    def uploads(self) -> int:
        """Number of replies with a vector."""
        return sum(r.uploads for r in self.records)

    @cached_property
    def skips(self) -> int:
        """Number of replies without a vector."""
        return sum(r.skips for r in self.records)

    @cached_property
    def late(self) -> int | None:
        """Number of replies that a deadline lost; None without a link model."""
        counts = [r.late for r in self.records if r.late is not None]
        return sum(counts) if counts else None

    @property
    def mean_level(self) -> float | None:
        """Mean bits per coordinate over all uploads; None without uploads."""
        levels = [level for r in self.records for level in r.levels.values()]
        return sum(levels) / len(levels) if levels else None

    @property
    def loss_increased(self) -> bool:
        """Whether the last loss is above the first one, for a run of at least 10 rounds."""
        losses = [r.loss for r in self.records if r.loss is not None]
        return len(losses) >= MIN_ROUNDS_FOR_TREND and not losses[-1] <= losses[0]

    def last_metric(self, name: str) -> float | None:
        """Return the latest value of a metric; None if it was never measured."""
        return next((r.metrics[name] for r in reversed(self.records) if name in r.metrics), None)

    def final_metric(self, name: str) -> float | None:
        """Return the mean of the last five values of a metric; None if it was never measured."""
        values = [r.metrics[name] for r in self.records if name in r.metrics][-FINAL_EVALUATIONS:]
        return sum(values) / len(values) if values else None
