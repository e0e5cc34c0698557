"""Runs found on disk, with what their folders say about them."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aquila.report.table import Result
from aquila.sim.records import read_records
from aquila.sim.setting import SETTINGS

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


def _read(folder: Path) -> FoundRun:
    path = folder / SETTINGS
    try:
        facts = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} does not tell what was run: it is not JSON") from error
    if not isinstance(facts, dict) or "method" not in facts:
        raise ValueError(f"{path} does not tell what was run: it names no method")
    return FoundRun(folder, facts, Result(str(facts["method"]), read_records(folder)))
