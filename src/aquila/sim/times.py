"""How long the rounds of a run really took: one JSON line per round, next to the records.

The times are not part of the records, because runs of one seed have the same records.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from aquila.runtime.files import append
from aquila.sim.compressed import find_file, read_file, write_file

TIMES_FILE = "times.jsonl"


@dataclass(frozen=True)
class RoundTime:
    """Wall-clock seconds of a round, and when it ended, in ISO format and UTC."""

    round: int
    seconds: float
    ended: str


def append_time(folder: Path, round_number: int, seconds: float) -> None:
    """Append the time of a round that ends now."""
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    time = RoundTime(round_number, round(seconds, 6), ended)
    append(folder / TIMES_FILE, _to_line(time), sync=False)


def write_times(folder: Path, times: Sequence[RoundTime]) -> None:
    """Replace the times of a run atomically."""
    write_file(folder / TIMES_FILE, b"".join(map(_to_line, times)))


def read_times(folder: Path, rounds: int) -> list[RoundTime]:
    """Return the times of the first rounds; empty unless all of them are known."""
    path = find_file(folder / TIMES_FILE)
    if path is None:
        return []
    try:
        lines = read_file(path).decode().splitlines()[:rounds]
        times = [RoundTime(**json.loads(line)) for line in lines]
    except (ValueError, TypeError, RecursionError):  # also a truncated last line
        return []
    return times if [t.round for t in times] == list(range(rounds)) and _valid(times) else []


def _valid(times: Sequence[RoundTime]) -> bool:
    try:
        dates = [datetime.fromisoformat(time.ended) for time in times]
    except (ValueError, TypeError):
        return False
    return all(date.tzinfo is not None for date in dates) and all(
        isinstance(t.seconds, int | float) and 0 <= t.seconds < 1e12 for t in times
    )


def _to_line(time: RoundTime) -> bytes:
    return (json.dumps(asdict(time)) + "\n").encode()
