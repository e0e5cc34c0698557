"""`aquila compare`: several methods on the same problem, a table, a figure and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aquila.cli.report import REPORT, write_report
from aquila.cli.setting import chosen_experiment, setting_options
from aquila.cli.spec import Spec, parse_spec
from aquila.cli.tracking import chosen_trackers, tracking_options

if TYPE_CHECKING:
    from aquila.cli.training import Training
    from aquila.report.table import Result

FIGURE = "loss_against_uplink.png"


@click.command()
@setting_options
@click.option(
    "-m", "--method", "methods", multiple=True, metavar="METHOD",
    help="A method, as in `aquila run`; may be given many times. Default: the file's, or all.",
)  # fmt: skip
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/compare"),
    show_default=True,
    help="Folder for records, checkpoints, the figure and the report.",
)
@click.option("--resume", is_flag=True, help="Go on with the runs in the folder.")
@click.option("--overwrite", is_flag=True, help="Throw away the runs in the folder.")
@tracking_options
def compare(
    experiment: Path | None,
    smoke: bool,
    methods: tuple[str, ...],
    out: Path,
    resume: bool,
    overwrite: bool,
    tensorboard: Path | None,
    mlflow: str | None,
    **options: str | None,
) -> None:
    """Train with several methods on the same data, devices and seed, and compare them."""
    chosen = chosen_experiment(experiment, smoke, options)

    from aquila.cli.progress import Watch, make_console
    from aquila.cli.training import Training, claim
    from aquila.report.plot import plot_loss_against_uplink
    from aquila.report.table import results_table

    specs = [parse_spec(text) for text in methods or chosen.compare] or default_specs()
    trackers = chosen_trackers(tensorboard, mlflow)
    for number, spec in enumerate(specs):
        spec.create(chosen)  # a misspelt method is reported before any training
        if spec in specs[:number]:
            raise ValueError(f"{spec.label} is given twice")
        claim(spec, out / spec.file_name, trackers, resume, overwrite)
    console, setting = make_console(), chosen.setting
    problem, parts = setting.problem()
    console.print(setting.describe(len(problem.theta0)))
    watch = Watch(console, setting.rounds, max(len(spec.label) for spec in specs))
    training = Training(chosen, problem, parts, resume, watch, trackers)
    results = [one(spec, training, out / spec.file_name) for spec in specs]
    console.print(results_table(results, problem.fleet, console.width))
    figure = plot_loss_against_uplink(results, out / FIGURE)
    console.print(f"loss against uplink bytes: {figure}")
    if any(result.records for result in results):
        page = write_report([out / spec.file_name for spec in specs], out / REPORT)
        console.print(f"report, to open in a browser: {page}")


def default_specs() -> list[Spec]:
    """Return every method; AQUILA as printed, from two bits on, and at the tighter level."""
    from aquila.methods import METHODS

    others = [Spec(name, {}) for name in METHODS if name != "aquila"]
    variants: tuple[dict[str, object], ...] = ({}, {"b_min": 2}, {"level_rule": "tight"})
    return [*(Spec("aquila", parameters) for parameters in variants), *others]


def one(spec: Spec, training: Training, folder: Path) -> Result:
    """Run one method; one that diverges ends early, says so and keeps its records."""
    from aquila.report.table import Result
    from aquila.runtime.finite import NonFiniteError
    from aquila.sim.records import read_records

    try:
        return Result(spec.label, training.run(spec, folder))
    except NonFiniteError as error:
        training.watch.say(spec.label, f"stopped: {error}")
        return Result(spec.label, read_records(folder), stopped=True)
