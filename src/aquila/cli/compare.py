"""`aquila compare`: several methods on the same problem, a table, a figure and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aquila.cli.report import REPORT, write_report
from aquila.cli.setting import chosen_experiment, setting_options
from aquila.cli.spec import Spec, parse_spec

if TYPE_CHECKING:
    from aquila.cli.progress import Watch
    from aquila.report.table import Result
    from aquila.sim.experiment import Experiment
    from aquila.sim.module import Problem
    from aquila.tasks.partition import Partition

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
def compare(
    experiment: Path | None,
    smoke: bool,
    methods: tuple[str, ...],
    out: Path,
    resume: bool,
    overwrite: bool,
    **options: str | None,
) -> None:
    """Train with several methods on the same data, devices and seed, and compare them."""
    chosen = chosen_experiment(experiment, smoke, options)

    from aquila.cli.progress import Watch, make_console
    from aquila.cli.training import claim
    from aquila.report.plot import plot_loss_against_uplink
    from aquila.report.table import results_table

    specs = [parse_spec(text) for text in methods or chosen.compare] or default_specs()
    for number, spec in enumerate(specs):
        spec.create(chosen)  # a misspelt method is reported before any training
        if spec in specs[:number]:
            raise ValueError(f"{spec.label} is given twice")
        claim(folder_of(spec, out), resume, overwrite)
    console, setting = make_console(), chosen.setting
    problem, parts = setting.problem()
    console.print(setting.describe(len(problem.theta0)))
    with Watch(console, setting.rounds, max(len(spec.label) for spec in specs)) as watch:
        results = [
            one(spec, chosen, problem, parts, folder_of(spec, out), resume, watch) for spec in specs
        ]
    console.print(results_table(results, problem.fleet))
    figure = plot_loss_against_uplink(results, out / FIGURE)
    console.print(f"loss against uplink bytes: {figure}")
    if any(result.records for result in results):
        page = write_report([folder_of(spec, out) for spec in specs], out / REPORT)
        console.print(f"report, to open in a browser: {page}")


def default_specs() -> list[Spec]:
    """Return every method; AQUILA as printed, from two bits on, and at the tighter level."""
    from aquila.methods import METHODS

    others = [Spec(name, {}) for name in METHODS if name != "aquila"]
    variants: tuple[dict[str, object], ...] = ({}, {"b_min": 2}, {"level_rule": "tight"})
    return [*(Spec("aquila", parameters) for parameters in variants), *others]


def folder_of(spec: Spec, out: Path) -> Path:
    """Return the folder of one method's run."""
    return out / spec.label.replace(" ", "_")


def one(
    spec: Spec,
    experiment: Experiment,
    problem: Problem,
    parts: Partition,
    folder: Path,
    resume: bool,
    watch: Watch,
) -> Result:
    """Run one method; one that diverges ends early, says so and keeps its records."""
    from aquila.cli.training import train
    from aquila.report.table import Result
    from aquila.runtime.finite import NonFiniteError
    from aquila.sim.folder import RECORDS
    from aquila.sim.records import read_records

    try:
        records = train(spec, experiment, problem, parts, folder, resume, watch)
        return Result(spec.label, records)
    except NonFiniteError as error:
        watch.say(f"stopped: {error}")
        return Result(spec.label, read_records(folder / RECORDS), stopped=True)
