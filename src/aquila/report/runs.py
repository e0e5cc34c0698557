"""Runs found on disk, with what their folders say about them."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aquila.report.table import Result
from aquila.sim.records import Record, read_records, records_file
from aquila.sim.setting import SETTINGS

COUNTS = ("uplink_bytes", "downlink_bytes", "paper_bits", "uploads", "skips", "lost", "refused")
MOST_DEVICES = 1_000_000
T = TypeVar("T")


@dataclass(frozen=True)
class FoundRun:
    """A run in a folder: its method and setting, and its records."""

    folder: Path
    facts: Mapping[str, Any]
    result: Result

    @property
    def method(self) -> str:
        """Name of the method, without its parameters."""
        return self.result.label.partition(" ")[0]

    @property
    def beta(self) -> float | None:
        """Beta that a run of AQUILA was given; None if it was given none, or is of another."""
        return _beta(self.facts)

    @property
    def rounds(self) -> int:
        """Rounds that were run, which may be fewer than were asked for."""
        return len(self.result.records)


def find_runs(folder: Path, on_broken: Callable[[Exception], None] | None = None) -> list[FoundRun]:
    """Return all runs in a folder and below that have a round; ValueError names a broken file.

    With `on_broken`, which is told of them, broken runs are left out as long as there are others.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    found, broken = read_each(_read, (path.parent for path in sorted(folder.rglob(SETTINGS))))
    runs = [run for run in found if run.rounds]
    for error in broken:
        if on_broken is None or not runs:
            raise error
        on_broken(error)
    return runs


def read_each(
    read: Callable[[Path], T], folders: Iterable[Path]
) -> tuple[list[T], list[Exception]]:
    """Return what can be read, and what is said of the rest."""
    found: list[T] = []
    broken: list[Exception] = []
    for folder in folders:
        try:
            found.append(read(folder))
        except (ValueError, OSError) as error:
            broken.append(error)
    return found, broken


def read_facts(path: Path) -> dict[str, Any]:
    """Return what a folder says about its run; ValueError says what is wrong with it."""
    try:
        facts = json.loads(path.read_text())
        fault = _fault(facts)
    except (ValueError, RecursionError):
        fault = "it is not JSON"
    if fault:
        raise ValueError(f"{path} does not tell what was run: {fault}")
    return dict(facts)


def read_sound_records(folder: Path) -> list[Record]:
    """Read all records of a run; ValueError names one that has no number where one belongs."""
    records = read_records(folder)
    for record in records:
        if not _is_sound(record):
            raise ValueError(
                f"{records_file(folder)}, line {record.round + 1}, has something that is no number "
                "in place of one"
            )
    return records


def _read(folder: Path) -> FoundRun:
    facts = read_facts(folder / SETTINGS)
    label = facts.get("method")
    if not isinstance(label, str) or not label:
        raise ValueError(f"{folder / SETTINGS} does not tell what was run: it names no method")
    return FoundRun(folder, facts, Result(label, read_sound_records(folder)))


def _fault(facts: object) -> str | None:
    if not isinstance(facts, dict):
        return "it holds no settings"
    if not isinstance(facts.get("parameters", {}), dict):
        return "its parameters are no names with values"
    if type(facts.get("seed", 0)) is not int:
        return "its seed is no whole number"
    try:
        _beta(facts)
    except (ValueError, TypeError, OverflowError):
        return "its beta is no number"
    return None


def _beta(facts: Mapping[str, Any]) -> float | None:
    """Return the beta of a run of AQUILA, by its parameters or else by its label."""
    method, *parts = str(facts.get("method")).split(" ")
    told = {**dict(part.partition("=")[::2] for part in parts), **facts.get("parameters", {})}
    return float(told["beta"]) if method == "aquila" and "beta" in told else None


def _is_sound(record: Record) -> bool:
    if not isinstance(record.metrics, Mapping):
        return False
    if not all(0 <= device < MOST_DEVICES for device in (*record.levels, *record.uplink)):
        return False
    counts = [getattr(record, name) for name in COUNTS]
    counts += [*record.levels.values(), *record.uplink.values()]
    numbers = [n for n in (record.loss, record.error_ratio) if n is not None]
    numbers += record.metrics.values()
    return all(type(c) is int and 0 <= c < 2**63 for c in counts) and all(
        (isinstance(n, int | float) and abs(n) < 2**1000) or n != n for n in numbers
    )
