"""The runs that a report is made of, read from their folders."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from aquila.report.colours import is_own
from aquila.report.runs import MOST_DEVICES, read_each, read_facts, read_sound_records
from aquila.report.table import Result
from aquila.sim.packed import find_file, read_file
from aquila.sim.records import RECORDS, Record, records_file
from aquila.sim.setting import SETTINGS, SPLIT

PROBLEM = ("data", "samples", "test_samples", "model", "widths", "devices", "split", "mask_classes")
"""Settings that runs must share for their bytes to compare."""


@dataclass(frozen=True)
class Run:
    """One run: its records, what its folder tells about it, and who had which sample."""

    label: str
    folder: Path
    records: Sequence[Record]
    facts: Mapping[str, object]
    owners: Sequence[int]

    @property
    def own(self) -> bool:
        """Whether the method is AQUILA, in any variant."""
        return is_own(self.label)

    @cached_property
    def result(self) -> Result:
        """The sums over the records."""
        return Result(self.label, self.records)

    @cached_property
    def sent(self) -> list[int]:
        """Uplink bytes up to the end of each round."""
        return list(accumulate(r.uplink_bytes for r in self.records))

    @property
    def problem(self) -> tuple[str, ...]:
        """The settings of the problem itself, as text."""
        return tuple(json.dumps(self.facts.get(name)) for name in PROBLEM)

    @property
    def planned(self) -> int:
        """The number of rounds the run was meant to have."""
        rounds = self.facts.get("rounds")
        return rounds if isinstance(rounds, int) else len(self.records)

    @cached_property
    def devices(self) -> int:
        """The number of devices."""
        seen = 1 + max((d for r in self.records for d in r.uplink), default=0)
        told = self.facts.get("devices")
        return max(seen, told) if isinstance(told, int) and told <= MOST_DEVICES else seen

    @cached_property
    def samples(self) -> list[int]:
        """How many samples each device had; empty if the folder does not tell."""
        counts = Counter(self.owners)
        return [counts[device] for device in range(max(counts, default=-1) + 1)]


@dataclass(frozen=True)
class Runs:
    """What was found: runs, folders of runs without a round, and what is wrong with broken ones."""

    runs: Sequence[Run]
    empty: Sequence[Path] = ()
    broken: Sequence[str] = ()


def read_runs(folders: Iterable[Path]) -> Runs:
    """Read the runs in the folders, or in their folders; ValueError says which holds none.

    Broken runs are left out, as long as there are others.
    """
    found = list(dict.fromkeys(run for folder in folders for run in _run_folders(folder)))
    runs, broken = read_each(_read, found)
    full = [run for run in runs if run.records]
    empty = [run.folder for run in runs if not run.records]
    if broken and not full:
        raise broken[0]
    if not full:
        raise ValueError(f"{empty[0]} holds a run of no rounds; there is nothing to report yet")
    return Runs(sorted(_told_apart(full), key=lambda run: not run.own), empty, [*map(str, broken)])


def _told_apart(runs: Sequence[Run]) -> list[Run]:
    """Add to labels that are not unique what is: the folder around, the folder, or the path."""
    named = list(runs)
    for label, count in Counter(run.label for run in runs).items():
        if count == 1:
            continue
        same = [n for n, run in enumerate(runs) if run.label == label]
        folders = [runs[n].folder.resolve() for n in same]
        ways = ([f.parent.name for f in folders], [f.name for f in folders])
        names = next((names for names in ways if len(set(names)) == count), map(str, folders))
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
            f"{folder} holds no run: there is no {RECORDS} in it, nor in a folder in it"
        )
    return within


def _read(folder: Path) -> Run:
    records = read_sound_records(folder)
    path = folder / SETTINGS
    facts = read_facts(path) if path.exists() else {}
    label = facts.get("method")
    label = label if isinstance(label, str) and label else folder.resolve().name
    return Run(label, folder, records, facts, _read_owners(folder))


def _read_owners(folder: Path) -> list[int]:
    path = find_file(folder / SPLIT)
    if path is None:
        return []
    content = read_file(path)
    try:
        owners = json.loads(content)["device_of_sample"]
        sound = all(type(owner) is int and 0 <= owner < MOST_DEVICES for owner in owners)
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise ValueError(f"{path} does not hold a split")
    return list(owners)
