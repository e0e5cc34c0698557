"""Runs found on disk, with what their folders say about them."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aquila.report.results_table import RunResult
from aquila.sim.records import Record, read_records, records_file
from aquila.sim.setting import RUN_FILE

COUNTS = ("uplink_bytes", "downlink_bytes", "paper_bits", "uploads", "skips", "lost", "refused")
MAX_DEVICES = 1_000_000
RunT = TypeVar("RunT")


@dataclass(frozen=True)
class StoredRun:
    """A run in a folder: its method and setting, and its records."""

    folder: Path
    facts: Mapping[str, Any]
    result: RunResult

    @property
    def method(self) -> str:
        """Name of the method, without its parameters."""
        return self.result.label.partition(" ")[0]

    @property
    def beta(self) -> float | None:
        """Beta that a run of AQUILA was given; None if it was given none, or is of another."""
        return _find_beta(self.facts)

    @property
    def rounds(self) -> int:
        """Rounds that were run, which may be fewer than were asked for."""
        return len(self.result.records)


def find_runs(
    folder: Path, on_broken: Callable[[Exception], None] | None = None
) -> list[StoredRun]:
    """Return all runs in a folder and below that have a round; ValueError names a broken file.

    With `on_broken`, which is told of them, broken runs are left out as long as there are others.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    found, broken = read_with_errors(
        _read, (path.parent for path in sorted(folder.rglob(RUN_FILE)))
    )
    runs = [run for run in found if run.rounds]
    for error in broken:
        if on_broken is None or not runs:
            raise error
        on_broken(error)
    return runs


def read_with_errors(
    read: Callable[[Path], RunT], folders: Iterable[Path]
) -> tuple[list[RunT], list[Exception]]:
    """Return what can be read, and what is said of the rest."""
    found: list[RunT] = []
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
        fault = _find_fault(facts)
    except (ValueError, RecursionError):
        fault = "it is not JSON"
    if fault:
        raise ValueError(f"{path} does not tell what was run: {fault}")
    return dict(facts)


def read_valid_records(folder: Path) -> list[Record]:
    """Read all records of a run; ValueError names one that has no number where one belongs."""
    records = read_records(folder)
    for record in records:
        if not _is_valid(record):
            raise ValueError(
                f"{records_file(folder)}, line {record.round + 1}, has something that is no number "
                "in place of one"
            )
    return records


def _read(folder: Path) -> StoredRun:
    facts = read_facts(folder / RUN_FILE)
    label = facts.get("method")
    if not isinstance(label, str) or not label:
        raise ValueError(f"{folder / RUN_FILE} does not tell what was run: it names no method")
    return StoredRun(folder, facts, RunResult(label, read_valid_records(folder)))


def _find_fault(facts: object) -> str | None:
    if not isinstance(facts, dict):
        return "it holds no settings"
    if not isinstance(facts.get("parameters", {}), dict):
        return "its parameters are no names with values"
    if type(facts.get("seed", 0)) is not int:
        return "its seed is no whole number"
    try:
        _find_beta(facts)
    except (ValueError, TypeError, OverflowError):
        return "its beta is no number"
    return None


def _find_beta(facts: Mapping[str, Any]) -> float | None:
    """Return the beta of a run of AQUILA, by its parameters or else by its label."""
    method, *parts = str(facts.get("method")).split(" ")
    values = {**dict(part.partition("=")[::2] for part in parts), **facts.get("parameters", {})}
    return float(values["beta"]) if method == "aquila" and "beta" in values else None


def _is_valid(record: Record) -> bool:
    if not isinstance(record.metrics, Mapping):
        return False
    if not all(0 <= device < MAX_DEVICES for device in (*record.levels, *record.uplink)):
        return False
    counts = [getattr(record, name) for name in COUNTS]
    counts += [*record.levels.values(), *record.uplink.values()]
    numbers = [n for n in (record.loss, record.error_ratio) if n is not None]
    numbers += record.metrics.values()
    return all(type(c) is int and 0 <= c < 2**63 for c in counts) and all(
        (isinstance(n, int | float) and abs(n) < 2**1000) or n != n for n in numbers
    )
