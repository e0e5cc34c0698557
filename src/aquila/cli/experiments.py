"""`aquila experiments`: the experiment files in a folder."""

from pathlib import Path

import click

from aquila.cli.named_path import NamedPath


@click.command(short_help="List the experiment files.")
@click.argument(
    "folder", type=NamedPath(path_type=Path, file_okay=False), default=Path("experiments")
)
def experiments(folder: Path) -> None:
    """List the experiment files in FOLDER, by default `experiments`."""
    from rich.table import Table

    from aquila.report.progress import make_console
    from aquila.sim.experiment import read_experiment

    paths = sorted(folder.rglob("*.toml"))
    if not paths:
        raise ValueError(f"{folder} contains no experiment files (*.toml)")
    table = Table(box=None, pad_edge=False)
    table.add_column("file", no_wrap=True)
    for heading in ("data", "model", "split"):
        table.add_column(heading)
    for heading in ("devices", "rounds", "methods"):
        table.add_column(heading, justify="right")
    for path in paths:
        experiment = read_experiment(path, {})
        setting = experiment.setting
        table.add_row(
            str(path), setting.data, setting.model, setting.split, str(setting.devices),
            str(setting.rounds), str(len(experiment.compare) or "all"),
        )  # fmt: skip
    console = make_console()
    console.print(table)
    console.print("Start one with `aquila compare FILE`; --smoke tries it on made-up samples.")
