"""`aquila run`: one method."""

from pathlib import Path

import click

from aquila.cli.setting import chosen_experiment, setting_options
from aquila.cli.spec import parse_spec
from aquila.cli.tracking import chosen_trackers, tracking_options


@click.command()
@setting_options
@click.option(
    "-m",
    "--method",
    default="aquila",
    show_default=True,
    help="A method that `aquila methods` lists, parameters after a colon: aquila:b_min=2,beta=0.1",
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for records and checkpoints.")
@click.option("--resume", is_flag=True, help="Go on with the run in the folder.")
@click.option("--overwrite", is_flag=True, help="Throw away the run in the folder.")
@tracking_options
def run(
    experiment: Path | None,
    smoke: bool,
    method: str,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    tensorboard: Path | None,
    mlflow: str | None,
    **options: str | None,
) -> None:
    """Train with one method, on the digits or on the EXPERIMENT of a TOML file."""
    chosen, spec = chosen_experiment(experiment, smoke, options), parse_spec(method)

    from aquila.cli.progress import Watch, make_console
    from aquila.cli.training import Training, claim
    from aquila.report.table import Result, results_table

    spec.create(chosen)  # a misspelt method is reported before anything else
    trackers = chosen_trackers(tensorboard, mlflow)
    claim(spec, out, trackers, resume, overwrite)
    console, setting = make_console(), chosen.setting
    problem, parts = setting.problem()
    console.print(setting.describe(len(problem.theta0)))
    watch = Watch(console, setting.rounds, len(spec.label))
    records = Training(chosen, problem, parts, resume, watch, trackers).run(spec, out)
    console.print(results_table([Result(spec.label, records)], problem.fleet, console.width))
