"""`aquila figures`: figures of runs."""

from pathlib import Path

import click

from aquila.cli.broken_runs import warn_broken_run
from aquila.cli.named_path import NamedPath


@click.command()
@click.argument("folder", type=NamedPath(path_type=Path))
@click.option(
    "--out",
    type=NamedPath(path_type=Path),
    help="Folder for the figures.  [default: `figures` in FOLDER]",
)
def figures(folder: Path, out: Path | None) -> None:
    """Plot the runs in FOLDER.

    This plots the figures of the paper and some others, separately for each folder of runs below
    FOLDER.
    """
    from aquila.report.figures import draw_all
    from aquila.report.runs import find_runs

    runs = find_runs(folder, warn_broken_run)
    for path in draw_all(runs, folder, out or folder / "figures"):
        click.echo(path)
