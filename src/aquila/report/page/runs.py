"""Reads the runs of a report from their folders."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from aquila.report.colours import is_aquila
from aquila.report.labelled_run import LabelledRun
from aquila.report.runs import MAX_DEVICES, read_facts, read_valid_records, read_with_errors
from aquila.runtime.options import LINK_OPTIONS, option_parameters
from aquila.sim.compressed import find_file, read_file
from aquila.sim.records import RECORDS_FILE, Record, records_file
from aquila.sim.setting import RUN_FILE, SPLIT_FILE

PROBLEM_SETTINGS = (
    "data",
    "samples",
    "test_samples",
    "model",
    "widths",
    "devices",
    "split",
    "mask_classes",
    "dimension",
    "data_digest",
    "weights",
    "rows",
    *LINK_OPTIONS,
)
"""Settings that must be equal for the costs of two runs to be comparable."""

DEFAULTS = {name: option_parameters()[name].default for name in ("weights", "rows", *LINK_OPTIONS)}
"""Values of settings that older run folders do not record."""
WITHOUT_NAMES = ("dimension", "data_digest")
"""Settings that identify the model and the data of runs that do not name them."""


@dataclass(frozen=True)
class PageRun:
    """One run: its records, the contents of its run.json, and the device of each sample."""

    label: str
    folder: Path
    records: Sequence[Record]
    facts: Mapping[str, object]
    device_of_sample: Sequence[int]

    @property
    def is_aquila(self) -> bool:
        """Whether the method is AQUILA or builds on it."""
        return is_aquila(self.label)

    @cached_property
    def result(self) -> LabelledRun:
        """Totals over the records."""
        return LabelledRun(self.label, self.records)

    @cached_property
    def cumulative_uplink(self) -> list[int]:
        """Uplink bytes up to the end of each round."""
        return list(accumulate(r.uplink_bytes for r in self.records))

    @property
    def problem(self) -> tuple[str, ...]:
        """The settings that define the problem, as text."""
        implied = WITHOUT_NAMES if "data" in self.facts else ()
        return tuple(
            json.dumps(None if name in implied else self.facts.get(name, DEFAULTS.get(name)))
            for name in PROBLEM_SETTINGS
        )

    @property
    def planned_rounds(self) -> int:
        """The number of rounds that the run was started with."""
        rounds = self.facts.get("rounds")
        return rounds if isinstance(rounds, int) else len(self.records)

    @cached_property
    def devices(self) -> int:
        """The number of devices."""
        seen = 1 + max((d for r in self.records for d in r.uplink), default=0)
        stated = self.facts.get("devices")
        return max(seen, stated) if isinstance(stated, int) and stated <= MAX_DEVICES else seen

    @cached_property
    def samples_per_device(self) -> list[int]:
        """Number of samples of each device; empty if the folder has no split."""
        counts = Counter(self.device_of_sample)
        return [counts[device] for device in range(max(counts, default=-1) + 1)]


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
        sorted(_with_unique_labels(runs_with_rounds), key=lambda run: not run.is_aquila),
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
    return PageRun(label, folder, records, facts, _read_device_of_sample(folder))


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
