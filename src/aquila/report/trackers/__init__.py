"""Runs as other programs show them: what a tracker is, and what it is told."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from aquila.sim.records import Record


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers know it: its name, everything that was chosen for it, its folder if any."""

    name: str
    facts: Mapping[str, object]
    folder: Path | None = None


class RunLog(Protocol):
    """The trace of one run in a tracker. A tracker that fails raises OSError."""

    def known_rounds(self, rounds: int) -> int:
        """Return how many of the first so many rounds it knows already, without a gap."""
        ...

    def log(self, round: int, values: Mapping[str, float]) -> None:
        """Write down the numbers of a round."""
        ...

    def close(self, finished: bool) -> None:
        """Write down that the run is over, or has been stopped."""
        ...


class Tracker(Protocol):
    """A program that people look at runs with. Making one raises ValueError if it cannot work."""

    title: str

    def reserve_name(self, name: str, overwrite: bool) -> None:
        """Raise ValueError if a new run cannot have this name."""
        ...

    def open(self, run: TrackedRun, resume: bool) -> RunLog:
        """Begin the trace of a run, or go on with it."""
        ...


class RunTracking:
    """Tells trackers about every round of a run, one that fails being left out from then on."""

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
        """Begin with the rounds the run already has; trackers hear of those they do not know."""
        sent = list(accumulate(record.uplink_bytes for record in records))
        self._uplink_so_far = sent[-1] if sent else 0
        metrics = [
            round_metrics(record, total) for record, total in zip(records, sent, strict=True)
        ]
        for tracker in self._trackers:
            with self._drop_on_failure(tracker.title):
                log = tracker.open(self._run, self._resume)
                for round in range(log.known_rounds(len(metrics)), len(metrics)):
                    log.log(round, metrics[round])
                self._logs[tracker.title] = log

    def log(self, record: Record) -> None:
        """Tell about one more round."""
        self._uplink_so_far += record.uplink_bytes
        self._for_each_log(
            lambda log: log.log(record.round, round_metrics(record, self._uplink_so_far))
        )

    def close(self, finished: bool) -> None:
        """Tell that the run is over."""
        self._for_each_log(lambda log: log.close(finished))

    def _for_each_log(self, action: Callable[[RunLog], None]) -> None:
        for title, log in list(self._logs.items()):
            with self._drop_on_failure(title):
                action(log)

    @contextmanager
    def _drop_on_failure(self, title: str) -> Iterator[None]:
        """Go on without a tracker that fails."""
        try:
            yield
        except OSError as error:
            self._logs.pop(title, None)
            self._warn(f"{title} is told no more, --resume makes up for it: {error}")


def round_metrics(record: Record, sent: int) -> dict[str, float]:
    """Return what trackers show of a round; `sent` is the uplink of all rounds so far."""
    optional = {
        "loss": record.loss,
        "mean_level": record.mean_level,
        "error_ratio": record.error_ratio,
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
