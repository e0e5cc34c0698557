"""Runs found on disk, with what their folders say about them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aquila.report.table import Result
from aquila.sim.records import read_records
from aquila.sim.setting import SETTINGS


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


def find_runs(folder: Path) -> list[FoundRun]:
    """Return all runs in a folder and below that have a round; ValueError names a broken file."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    runs = [_read(path.parent) for path in sorted(folder.rglob(SETTINGS))]
    return [run for run in runs if run.rounds]


def _read(folder: Path) -> FoundRun:
    path = folder / SETTINGS
    try:
        facts = json.loads(path.read_text())
        label = str(facts["method"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} does not tell what was run") from error
    return FoundRun(folder, facts, Result(label, read_records(folder)))
