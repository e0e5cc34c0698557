"""Runs as other programs show them: what a tracker is, and what it is told."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from aquila.sim.records import Record


@dataclass(frozen=True)
class Followed:
    """A run as trackers know it: its name, everything that was chosen for it, its folder if any."""

    name: str
    facts: Mapping[str, object]
    folder: Path | None = None


class Track(Protocol):
    """The trace of one run in a tracker. A tracker that fails raises OSError."""

    def known(self, rounds: int) -> int:
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

    def claim(self, name: str, overwrite: bool) -> None:
        """Raise ValueError if a new run cannot have this name."""
        ...

    def open(self, run: Followed, resume: bool) -> Track:
        """Begin the trace of a run, or go on with it."""
        ...


class Following:
    """Tells trackers about every round of a run, one that fails being left out from then on."""

    def __init__(
        self,
        trackers: Sequence[Tracker],
        run: Followed,
        resume: bool,
        say: Callable[[str], None],
    ) -> None:
        self._run, self._resume, self._say = run, resume, say
        self._trackers = trackers
        self._tracks: dict[str, Track] = {}
        self._sent = 0

    def begin(self, records: Sequence[Record]) -> None:
        """Begin with the rounds the run already has; trackers hear of those they do not know."""
        sent = list(accumulate(record.uplink_bytes for record in records))
        self._sent = sent[-1] if sent else 0
        told = [numbers(record, total) for record, total in zip(records, sent, strict=True)]
        for tracker in self._trackers:
            with self._guard(tracker.title):
                track = tracker.open(self._run, self._resume)
                for round in range(track.known(len(told)), len(told)):
                    track.log(round, told[round])
                self._tracks[tracker.title] = track

    def log(self, record: Record) -> None:
        """Tell about one more round."""
        self._sent += record.uplink_bytes
        self._each(lambda track: track.log(record.round, numbers(record, self._sent)))

    def close(self, finished: bool) -> None:
        """Tell that the run is over."""
        self._each(lambda track: track.close(finished))

    def _each(self, tell: Callable[[Track], None]) -> None:
        for title, track in list(self._tracks.items()):
            with self._guard(title):
                tell(track)

    @contextmanager
    def _guard(self, title: str) -> Iterator[None]:
        """Go on without a tracker that fails."""
        try:
            yield
        except OSError as error:
            self._tracks.pop(title, None)
            self._say(f"{title} is told no more, --resume makes up for it: {error}")


def numbers(record: Record, sent: int) -> dict[str, float]:
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
