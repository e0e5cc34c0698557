"""Runs that differ only in their seed, as one run: means, and the range over the seeds."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from aquila.report.page.runs import PageRun
from aquila.sim.records import Record

MAY_DIFFER = (
    "seed", "data_digest", "data_folder", "init_from", "executor", "workers", "state_memory",
    "checkpoint_every", "aquila", "torch", "python", "machine", "gpu",
)  # fmt: skip
"""Entries of run.json in which repetitions of a run may differ."""
COUNTS = (
    "uplink_bytes", "uplink_header_bytes", "downlink_bytes", "downlink_header_bytes", "paper_bits",
    "uploads", "skips", "lost", "refused", "late",
)  # fmt: skip
NUMBERS = ("loss", "error_ratio", "seconds", "joules")


def merge_seeds(runs: Iterable[PageRun]) -> list[PageRun]:
    """Return the runs, with one run for those that differ only in the seed.

    It has the mean of every number. Levels and bytes by device are those of the first seed, whose
    data split they belong to.
    """
    groups: dict[str, list[PageRun]] = {}
    for number, run in enumerate(runs):
        known = isinstance(run.facts.get("seed"), int) and "method" in run.facts
        groups.setdefault(_identity(run) if known else str(number), []).append(run)
    return [merged for group in groups.values() for merged in _merge(group)]


def _identity(run: PageRun) -> str:
    same = {name: value for name, value in run.facts.items() if name not in MAY_DIFFER}
    return json.dumps(same, sort_keys=True, default=str)


def _merge(group: Sequence[PageRun]) -> list[PageRun]:
    seeds = [run.facts.get("seed") for run in group]
    if len(group) == 1 or len(set(map(str, seeds))) < len(group):
        return list(group)
    members = sorted(group, key=lambda run: str(run.facts["seed"]).zfill(20))
    length = min(len(run.records) for run in members)
    if not length:
        return list(group)
    times = zip(*(run.round_seconds for run in members), strict=False)
    return [
        replace(
            members[0],
            records=[_mean_record([run.records[n] for run in members]) for n in range(length)],
            facts={**members[0].facts, "seed": ", ".join(str(r.facts["seed"]) for r in members)},
            round_seconds=[fmean(seconds) for seconds in times][:length],
            members=tuple(members),
        )
    ]


def _mean_record(records: Sequence[Record]) -> Record:
    first = records[0]
    counts = {name: _mean(getattr(r, name) for r in records) for name in COUNTS}
    names = [n for n in first.metrics if all(n in r.metrics for r in records)]
    changes: dict[str, object] = {
        **{name: None if mean is None else round(mean) for name, mean in counts.items()},
        **{name: _mean(getattr(r, name) for r in records) for name in NUMBERS},
        "metrics": {name: fmean(r.metrics[name] for r in records) for name in names},
    }
    return replace(first, **changes)  # type: ignore[arg-type]


def _mean(values: Iterable[float | None]) -> float | None:
    every = list(values)
    known = [value for value in every if value is not None]
    return fmean(known) if len(known) == len(every) else None
