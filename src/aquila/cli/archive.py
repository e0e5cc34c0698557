"""`aquila archive`: write the small, committable form of runs."""

from pathlib import Path

import click

from aquila.cli.named_path import NamedPath
from aquila.report.units import format_bytes


@click.command()
@click.argument("runs", type=NamedPath(path_type=Path))
@click.argument("target", type=NamedPath(path_type=Path))
def archive(runs: Path, target: Path) -> None:
    """Write small copies of runs that can be committed.

    All runs in RUNS, at any depth, are copied to TARGET. A copy has the run's settings, records and
    split, the last two compressed. Checkpoints, models, figures, reports and runs without rounds
    are left out. `aquila report`, `table` and `figures` read archived runs like other runs.
    """
    from aquila.report.runs import find_runs
    from aquila.sim.archive import archive_contents, write_archive
    from aquila.sim.setting import RUN_FILE

    found = find_runs(runs)
    if not found:
        raise ValueError(f"there is no run in {runs} that has a {RUN_FILE} and rounds")
    if target.resolve().is_relative_to(runs.resolve()):
        raise ValueError(f"{target} is inside {runs}; choose a folder outside it")
    if target.exists() and not target.is_dir():
        raise ValueError(f"{target} is a file, not a folder")
    targets = [target / run.folder.relative_to(runs) for run in found]
    files = [archive_contents(run.folder, path) for run, path in zip(found, targets, strict=True)]
    total = 0
    for run, path, contents in zip(found, targets, files, strict=True):
        size = write_archive(contents)
        total += size
        click.echo(f"{path}: {run.rounds} rounds, {format_bytes(size)}")
    if len(found) > 1:
        click.echo(f"{len(found)} runs, {format_bytes(total)}")
