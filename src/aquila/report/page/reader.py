"""Reads the runs of a report from their folders."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from aquila.report.page.runs import PageRun
from aquila.report.page.seeds import merge_seeds
from aquila.report.runs import MAX_DEVICES, read_facts, read_valid_records, read_with_errors
from aquila.sim.compressed import find_file, read_file
from aquila.sim.records import RECORDS_FILE, records_file
from aquila.sim.setting import RUN_FILE, SPLIT_FILE
from aquila.sim.times import read_times


@dataclass(frozen=True)
class PageRuns:
    """Runs, folders of runs without a round, and error messages of broken runs."""

    runs: Sequence[PageRun]
    empty: Sequence[Path] = ()
    broken: Sequence[str] = ()


def read_runs(folders: Iterable[Path]) -> PageRuns:
    """Read the runs in the folders or in their direct subfolders.

    Broken runs are skipped. Raises ValueError if a folder holds no run, or no run is readable.
    """
    found = list(dict.fromkeys(run for folder in folders for run in _run_folders(folder)))
    runs, broken = read_with_errors(_read_run, found)
    runs_with_rounds = [run for run in runs if run.records]
    empty = [run.folder for run in runs if not run.records]
    if broken and not runs_with_rounds:
        raise broken[0]
    if not runs_with_rounds:
        raise ValueError(f"{empty[0]} holds a run without rounds; there is nothing to report yet")
    return PageRuns(
        sorted(
            _with_unique_labels(merge_seeds(runs_with_rounds)), key=lambda run: not run.is_aquila
        ),
        empty,
        [*map(str, broken)],
    )


def _with_unique_labels(runs: Sequence[PageRun]) -> list[PageRun]:
    """Append the parent folder, the folder or the path to labels that are not unique."""
    named = list(runs)
    for label, count in Counter(run.label for run in runs).items():
        if count == 1:
            continue
        same = [n for n, run in enumerate(runs) if run.label == label]
        folders = [runs[n].folder.resolve() for n in same]
        candidates = ([f.parent.name for f in folders], [f.name for f in folders])
        names = next((names for names in candidates if len(set(names)) == count), map(str, folders))
        for n, name in zip(same, names, strict=True):
            named[n] = replace(runs[n], label=f"{label} ({name})")
    return named


def _run_folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; a report is made of folders of runs")
    if records_file(folder):
        return [folder]
    within = sorted(path for path in folder.iterdir() if records_file(path))
    if not within:
        raise ValueError(
            f"{folder} holds no run: there is no {RECORDS_FILE} in it or in its subfolders"
        )
    return within


def _read_run(folder: Path) -> PageRun:
    records = read_valid_records(folder)
    path = folder / RUN_FILE
    facts = read_facts(path) if path.exists() else {}
    label = facts.get("method")
    label = label if isinstance(label, str) and label else folder.resolve().name
    times = read_times(folder, len(records))
    started = (
        datetime.fromisoformat(times[0].ended) - timedelta(seconds=times[0].seconds)
        if times
        else None
    )
    owners, seconds = _read_device_of_sample(folder), [time.seconds for time in times]
    return PageRun(label, folder, records, facts, owners, seconds, started)


def _read_device_of_sample(folder: Path) -> list[int]:
    path = find_file(folder / SPLIT_FILE)
    if path is None:
        return []
    content = read_file(path)
    try:
        device_of_sample = json.loads(content)["device_of_sample"]
        is_valid = all(
            type(device) is int and 0 <= device < MAX_DEVICES for device in device_of_sample
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise ValueError(f"{path} is not a valid split")
    return list(device_of_sample)
