"""Experiment trackers: their interface, and the metrics they receive."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from aquila.sim.records import Record


@dataclass(frozen=True)
class TrackedRun:
    """Name, settings and folder, if any, of a run to track."""

    name: str
    facts: Mapping[str, object]
    folder: Path | None = None


class RunLog(Protocol):
    """The log of one run in a tracker. It raises OSError if the tracker fails."""

    def known_rounds(self, rounds: int) -> int:
        """Return how many of the first `rounds` rounds are already logged without a gap."""
        ...

    def log(self, round_number: int, values: Mapping[str, float]) -> None:
        """Log the metrics of a round."""
        ...

    def close(self, finished: bool) -> None:
        """Mark the run as finished, or as stopped early."""
        ...


class Tracker(Protocol):
    """An experiment tracker. Its constructor raises ValueError if it is not usable."""

    title: str

    def reserve_name(self, name: str, overwrite: bool) -> None:
        """Raise ValueError if a new run must not use this name."""
        ...

    def open(self, run: TrackedRun, resume: bool) -> RunLog:
        """Start the log of a run, or continue it."""
        ...


class RunTracking:
    """Logs every round of a run to trackers. A tracker that fails is dropped."""

    def __init__(
        self,
        trackers: Sequence[Tracker],
        run: TrackedRun,
        resume: bool,
        warn: Callable[[str], None],
    ) -> None:
        self._run, self._resume, self._warn = run, resume, warn
        self._trackers = trackers
        self._logs: dict[str, RunLog] = {}
        self._uplink_so_far = 0

    def begin(self, records: Sequence[Record]) -> None:
        """Open the logs, and log the existing rounds that a tracker does not have yet."""
        sent = list(accumulate(record.uplink_bytes for record in records))
        self._uplink_so_far = sent[-1] if sent else 0
        metrics = [
            round_metrics(record, total) for record, total in zip(records, sent, strict=True)
        ]
        for tracker in self._trackers:
            with self._drop_on_failure(tracker.title):
                log = tracker.open(self._run, self._resume)
                for number in range(log.known_rounds(len(metrics)), len(metrics)):
                    log.log(number, metrics[number])
                self._logs[tracker.title] = log

    def log(self, record: Record) -> None:
        """Log one more round."""
        self._uplink_so_far += record.uplink_bytes
        self._for_each_log(
            lambda log: log.log(record.round, round_metrics(record, self._uplink_so_far))
        )

    def close(self, finished: bool) -> None:
        """Close all logs."""
        self._for_each_log(lambda log: log.close(finished))

    def _for_each_log(self, action: Callable[[RunLog], None]) -> None:
        for title, log in list(self._logs.items()):
            with self._drop_on_failure(title):
                action(log)

    @contextmanager
    def _drop_on_failure(self, title: str) -> Iterator[None]:
        """Drop a tracker that fails, with a warning."""
        try:
            yield
        except OSError as error:
            self._logs.pop(title, None)
            self._warn(
                f"logging to {title} stopped; a resumed run logs the missing rounds: {error}"
            )


def round_metrics(record: Record, sent: int) -> dict[str, float]:
    """Return the metrics of a round; `sent` is the total uplink so far."""
    optional = {
        "loss": record.loss,
        "mean_level": record.mean_level,
        "error_ratio": record.error_ratio,
        "seconds": record.seconds,
        "joules": record.joules,
        "late": record.late,
        "rejected": None if record.rejected is None else len(record.rejected),
        "quarantined": None if record.quarantined is None else len(record.quarantined),
        "epsilon": record.epsilon,
    }
    return {
        **{name: value for name, value in optional.items() if value is not None},
        "uplink_bytes": record.uplink_bytes,
        "uplink_bytes_so_far": sent,
        "downlink_bytes": record.downlink_bytes,
        "paper_bits": record.paper_bits,
        "uploads": record.uploads,
        "skips": record.skips,
        "lost": record.lost,
        "refused": record.refused,
        **record.notes,
        **record.metrics,
    }


def make_trackers(tensorboard: Path | None, mlflow: str | None) -> list[Tracker]:
    """Return the chosen trackers; ValueError if one is not installed or not reachable."""
    trackers: list[Tracker] = []
    if tensorboard is not None:
        from aquila.report.trackers.tensorboard import TensorBoard

        trackers.append(TensorBoard(tensorboard))
    if mlflow is not None:
        from aquila.report.trackers.mlflow import Mlflow

        trackers.append(Mlflow(mlflow))
    return trackers
