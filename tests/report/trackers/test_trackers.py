"""The metrics that trackers receive, checked with one that stores them in a list."""

import pytest

from aquila.report.trackers import RunTracking, TrackedRun, round_metrics
from helpers.fake_records import fake_record

RECORDS = [fake_record(round) for round in range(5)]


class ListTracker:
    """A tracker that stores values, may already have rounds, and may fail."""

    def __init__(self, title: str = "memory", known: int = 0, breaks_at: int | None = None) -> None:
        self.title, self.known, self.breaks_at = title, known, breaks_at
        self.steps: list[int] = []
        self.values: list[dict[str, float]] = []
        self.finished: bool | None = None

    def reserve_name(self, name: str, overwrite: bool) -> None: ...

    def open(self, run: TrackedRun, resume: bool) -> "ListTracker":
        return self

    def known_rounds(self, rounds: int) -> int:
        return min(rounds, self.known)

    def log(self, round_number: int, values: dict[str, float]) -> None:
        if round_number == self.breaks_at:
            raise OSError("no space left")
        self.steps.append(round_number)
        self.values.append(dict(values))

    def close(self, finished: bool) -> None:
        self.finished = finished


def track(*trackers: ListTracker, before: int = 0) -> list[str]:
    warnings: list[str] = []
    tracking = RunTracking(trackers, TrackedRun("laq", {}), resume=before > 0, warn=warnings.append)
    tracking.begin(RECORDS[:before])
    for record in RECORDS[before:]:
        tracking.log(record)
    tracking.close(True)
    return warnings


def test_every_round_is_logged_once():
    tracker = ListTracker()
    assert track(tracker) == []
    assert tracker.steps == [0, 1, 2, 3, 4]
    assert tracker.finished


@pytest.mark.parametrize("known", [0, 2, 3])
def test_resumed_run_logs_the_rounds_a_tracker_misses(known):
    tracker = ListTracker(known=known)
    track(tracker, before=3)
    assert tracker.steps == list(range(known, 5))
    assert tracker.values[-1]["uplink_bytes_so_far"] == 5 * 2**20


@pytest.mark.parametrize("breaks_at", [0, 3])
def test_failing_tracker_does_not_stop_others(breaks_at):
    broken, sound = ListTracker("broken", breaks_at=breaks_at), ListTracker("sound")
    (warning,) = track(broken, sound, before=1)
    assert (
        warning == "logging to broken stopped; a resumed run logs the missing rounds: no space left"
    )
    assert broken.steps == list(range(breaks_at))
    assert broken.finished is None
    assert sound.steps == [0, 1, 2, 3, 4]


def test_metrics_equal_the_record():
    record = fake_record(2, notes={"skip_left": 0.25}, metrics={"test_accuracy": 0.5})
    assert round_metrics(record, 77) == {
        "loss": 1 / 3, "mean_level": 4, "error_ratio": 0.5, "uplink_bytes": 2**20,
        "uplink_bytes_so_far": 77, "downlink_bytes": 2**21, "paper_bits": 4000, "uploads": 1,
        "skips": 1, "lost": 0, "refused": 0, "skip_left": 0.25, "test_accuracy": 0.5,
    }  # fmt: skip


def test_missing_values_are_omitted():
    silent = fake_record(0, loss=None, levels={}, error_ratio=None, metrics={})
    assert not {"loss", "mean_level", "error_ratio"} & set(round_metrics(silent, 0))
