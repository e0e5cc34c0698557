"""`aquila keep`: what is worth keeping of runs, and nothing else."""

from pathlib import Path

import click

KIB = 1024


@click.command()
@click.argument("runs", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
def keep(runs: Path, target: Path) -> None:
    """Copy the run in RUNS, or all runs below it, to TARGET, small enough to be committed.

    Kept are settings, records and splits, the last two compressed. Checkpoints, figures and reports
    are left behind, and so are runs of no rounds. `report`, `table` and `figures` read what
    was kept like the runs themselves.
    """
    from aquila.report.runs import find_runs
    from aquila.sim.keep import kept_files, write_files

    found = find_runs(runs)
    if not found:
        raise ValueError(f"there is no run in {runs}")
    if target.resolve().is_relative_to(runs.resolve()):
        raise ValueError(f"{target} lies in {runs} itself; choose a folder outside it")
    if target.exists() and not target.is_dir():
        raise ValueError(f"{target} is a file, not a folder")
    places = [target / run.folder.relative_to(runs) for run in found]
    files = [kept_files(run.folder, place) for run, place in zip(found, places, strict=True)]
    total = 0
    for run, place, one in zip(found, places, files, strict=True):
        size = write_files(one)
        total += size
        click.echo(f"{place}: {run.rounds} rounds, {size / KIB:.1f} KiB")
    if len(found) > 1:
        click.echo(f"{len(found)} runs, {total / KIB:.1f} KiB")
