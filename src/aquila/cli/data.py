"""`aquila data`: list, download, verify and split data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aquila.cli.named_path import NamedPath

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@click.group(invoke_without_command=True)
@click.pass_context
def data(context: click.Context) -> None:
    """List, download, verify and split data sets.

    Without a command, list all data sets and where they were found.
    """
    if context.invoked_subcommand is None:
        from aquila.report.progress import make_console

        make_console().print(datasets_table())


@data.command()
@click.argument("name")
def verify(name: str) -> None:
    """Check the files of data set NAME against the published checksums."""
    from aquila.tasks import data_store

    copy = data_store.find_required(name)
    if faulty := data_store.verify(name):
        raise ValueError(f"{copy.path} has wrong checksums: {', '.join(faulty)}")
    click.echo(f"{copy.source.title} in {copy.path}: all checksums match")


@data.command()
@click.argument("name")
@click.option(
    "--to",
    type=NamedPath(file_okay=False, path_type=Path),
    help="Folder to download to.  [default: $AQUILA_DATA, or ~/.cache/aquila]",
)
def fetch(name: str, to: Path | None) -> None:
    """Download data set NAME from its official address, and verify it.

    An interrupted download continues where it stopped.
    """
    from aquila.report.progress import make_console
    from aquila.tasks import data_store

    console = make_console()
    with _progress_bars(console) as show:
        copy = data_store.fetch(name, to, show)
    click.echo(f"{copy.source.title} is in {copy.path}")
    if data_store.find(name) is None:
        click.echo(f"Set {data_store.FOLDER_VARIABLE}={to} so that other commands find it")


@data.command()
@click.argument("name")
@click.argument("spec")
@click.option("--devices", default=10, show_default=True, help="Number of devices, M.")
@click.option("--seed", default=0, show_default=True, help="Seed of data and split.")
@click.option(
    "--out",
    type=NamedPath(dir_okay=False, path_type=Path),
    default="split.png",
    show_default=True,
    help="File for the figure.",
)
def split(name: str, spec: str, devices: int, seed: int, out: Path) -> None:
    """Split data set NAME, and plot the classes of each device.

    SPEC is iid, classes:COUNT, dirichlet:ALPHA, unequal:SPREAD or blocks:COUNT.
    """
    from statistics import median

    from aquila.core.random import Key, Purpose
    from aquila.report.split_figure import plot_split
    from aquila.tasks.datasets import read_dataset
    from aquila.tasks.partition import class_counts
    from aquila.tasks.partition import split as split_dataset

    dataset = read_dataset(name, seed=seed)
    labels = dataset.train[1]
    if labels.ndim > 1:
        raise ValueError(f"{name} is a text data set, which has no classes to plot")
    parts = split_dataset(spec, dataset, devices, Key((seed, Purpose.SPLIT)))
    sizes = [len(part) for part in parts]
    click.echo(
        f"{name} split {spec}: {devices} devices with {min(sizes)} to {max(sizes)} samples, "
        f"median {median(sizes):g}"
    )
    title = f"{name}, {spec}, {devices} devices"
    click.echo(plot_split(class_counts(labels, parts, dataset.classes), out, title))


def datasets_table() -> Table:
    """Return a table of all data sets: where each was found, and whether its checksums match."""
    from rich.markup import escape
    from rich.table import Table

    from aquila.tasks.sources import SOURCES

    table = Table(title="Data sets", title_justify="left")
    for heading in ("set", "found", "state"):
        table.add_column(heading, overflow="fold")
    table.add_row("digits", "in the package", "ready")
    for name in SOURCES:
        table.add_row(name, *map(escape, _status(name)))
    return table


def _status(name: str) -> tuple[str, str]:
    from aquila.tasks import data_store

    copy = data_store.find(name)
    if copy is None:
        return "-", f"missing: aquila data fetch {name}"
    faulty = data_store.verify(name)
    return str(copy.path), f"wrong checksums: {', '.join(faulty)}" if faulty else "verified"


@contextmanager
def _progress_bars(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar per file; yield the function that updates them."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console) as progress:
        tasks = {}

        def show(file: str, done: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = progress.add_task(file)
            progress.update(tasks[file], completed=done, total=total or None)

        yield show
