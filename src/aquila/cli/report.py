"""`aquila report`: one HTML page about runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aquila.cli.broken_runs import warn_broken_run
from aquila.cli.named_path import NamedPath

if TYPE_CHECKING:
    from aquila.report.page import ClassCounts, PageRun

REPORT_FILE = "report.html"


@click.command()
@click.argument(
    "folders", nargs=-1, required=True, metavar="DIR...", type=NamedPath(path_type=Path)
)
@click.option(
    "--out",
    type=NamedPath(dir_okay=False, path_type=Path),
    help=f"File to write.  [default: {REPORT_FILE} in the first DIR]",
)
def report(folders: tuple[Path, ...], out: Path | None) -> None:
    """Write an HTML report of runs.

    DIR is the --out folder of `aquila run` or `aquila compare`, or any folder that contains such
    folders. The report is one file and works offline.
    """
    click.echo(write_report(folders, out or folders[0] / REPORT_FILE))


def write_report(folders: Sequence[Path], path: Path) -> Path:
    """Write the report of the runs in the folders, and return its path."""
    from aquila.cli.reproduce import command_lines
    from aquila.report.page import read_runs, write_page

    found = read_runs(folders)
    for reason in found.broken:
        warn_broken_run(reason)
    facts = [run.facts for merged in found.runs for run in merged.repetitions]
    return write_page(found, path, command_lines(facts), class_counts_of)


def class_counts_of(run: PageRun) -> ClassCounts | None:
    """Return the samples per class and device; None if the data set is not on this machine."""
    import torch

    from aquila.sim.setting import PYTHON
    from aquila.tasks.datasets import read_dataset
    from aquila.tasks.partition import class_counts

    name, folder, seed = (run.facts.get(key) for key in ("data", "data_folder", "seed"))
    if not isinstance(name, str) or not isinstance(seed, int):
        return None
    if run.facts.get("started_from") == PYTHON:  # its samples count in the order of its shards
        return None
    try:
        data = read_dataset(name, folder if isinstance(folder, str) and folder else None, seed)
    except (ValueError, OSError):
        return None
    labels = data.train[1][: len(run.device_of_sample)]
    if labels.ndim > 1 or len(labels) < len(run.device_of_sample):
        return None
    owners = torch.tensor(run.device_of_sample)
    parts = [
        (owners == device).nonzero().flatten() for device in range(len(run.samples_per_device))
    ]
    return class_counts(labels, parts, data.classes)
