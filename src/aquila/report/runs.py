"""Finds and reads runs on disk."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aquila.report.labelled_run import LabelledRun
from aquila.sim.records import Record, read_records, records_file
from aquila.sim.setting import RUN_FILE

COUNTS = ("uplink_bytes", "downlink_bytes", "paper_bits", "uploads", "skips", "lost", "refused")
MAX_DEVICES = 1_000_000
RunT = TypeVar("RunT")


@dataclass(frozen=True)
class StoredRun:
    """A run in a folder: the contents of its run.json, and its records."""

    folder: Path
    facts: Mapping[str, Any]
    result: LabelledRun

    @property
    def method(self) -> str:
        """Name of the method, without parameters."""
        return self.result.label.partition(" ")[0]

    @property
    def beta(self) -> float | None:
        """Beta of a run of AQUILA; None if it has the default, or for another method."""
        return _find_beta(self.facts)

    @property
    def rounds(self) -> int:
        """Number of completed rounds."""
        return len(self.result.records)


def find_runs(
    folder: Path, on_broken: Callable[[Exception], None] | None = None
) -> list[StoredRun]:
    """Return all runs with at least one round in a folder and its subfolders.

    Raises ValueError, naming the file, if a run is broken. With `on_broken`, broken runs are passed
    to it and skipped, unless no run is left.
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
    """Return the runs that can be read, and the errors of the others."""
    found: list[RunT] = []
    broken: list[Exception] = []
    for folder in folders:
        try:
            found.append(read(folder))
        except (ValueError, OSError) as error:
            broken.append(error)
    return found, broken


def read_facts(path: Path) -> dict[str, Any]:
    """Return the contents of a run.json; ValueError says what is invalid."""
    try:
        facts = json.loads(path.read_text())
        fault = _find_fault(facts)
    except (ValueError, RecursionError):
        fault = "it is not JSON"
    if fault:
        raise ValueError(f"{path} is not a valid run file: {fault}")
    return dict(facts)


def read_valid_records(folder: Path) -> list[Record]:
    """Read all records of a run; ValueError names a line with an invalid number."""
    records = read_records(folder)
    for record in records:
        if not _is_valid(record):
            raise ValueError(
                f"{records_file(folder)}, line {record.round + 1}, has an invalid number"
            )
    return records


def _read(folder: Path) -> StoredRun:
    facts = read_facts(folder / RUN_FILE)
    label = facts.get("method")
    if not isinstance(label, str) or not label:
        raise ValueError(f"{folder / RUN_FILE} is not a valid run file: it names no method")
    return StoredRun(folder, facts, LabelledRun(label, read_valid_records(folder)))


def _find_fault(facts: object) -> str | None:
    if not isinstance(facts, dict):
        return "it is not a JSON object"
    if not isinstance(facts.get("parameters", {}), dict):
        return "its parameters are not a JSON object"
    if type(facts.get("seed", 0)) is not int:
        return "its seed is not an integer"
    try:
        _find_beta(facts)
    except (ValueError, TypeError, OverflowError):
        return "its beta is not a number"
    return None


def _find_beta(facts: Mapping[str, Any]) -> float | None:
    """Return the beta of a run of AQUILA, from its parameters or its label."""
    method, *parts = str(facts.get("method")).split(" ")
    values = {**dict(part.partition("=")[::2] for part in parts), **facts.get("parameters", {})}
    return float(values["beta"]) if method == "aquila" and "beta" in values else None


def _is_valid(record: Record) -> bool:
    if not isinstance(record.metrics, Mapping):
        return False
    listed = [n for group in (record.rejected, record.quarantined) for n in group or ()]
    devices = (*record.levels, *record.uplink, *listed)
    if not all(type(device) is int and 0 <= device < MAX_DEVICES for device in devices):
        return False
    counts = [getattr(record, name) for name in COUNTS]
    counts += [*record.levels.values(), *record.uplink.values()]
    counts += [] if record.late is None else [record.late]
    optional = (
        record.loss,
        record.error_ratio,
        record.seconds,
        record.joules,
        record.epsilon,
        record.delta,
    )
    numbers = [n for n in optional if n is not None]
    numbers += record.metrics.values()
    return all(type(c) is int and 0 <= c < 2**63 for c in counts) and all(
        (isinstance(n, int | float) and abs(n) < 2**1000) or n != n for n in numbers
    )
