"""`aquila run`: train with one method."""

from pathlib import Path

import click

from aquila.cli.method_spec import parse_method_spec
from aquila.cli.named_path import NamedPath
from aquila.cli.option_sections import CommandWithSections
from aquila.cli.setting_options import load_experiment, setting_options
from aquila.cli.tracker_options import TrackerOptions, tracker_options


@click.command(cls=CommandWithSections)
@setting_options
@click.option(
    "-m",
    "--method",
    default="aquila",
    show_default=True,
    help="Method that `aquila methods` lists, and its parameters: aquila:b_min=2,beta=0.1",
)
@click.option("--out", type=NamedPath(path_type=Path), help="Folder for records and checkpoints.")
@click.option("--resume", is_flag=True, help="Continue the run in the --out folder, if any.")
@click.option("--overwrite", is_flag=True, help="Delete the run in the --out folder first.")
@tracker_options
def run(
    experiment: Path | None,
    smoke: bool,
    method: str,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    trackers: TrackerOptions,
    **options: str | None,
) -> None:
    """Train with one method.

    EXPERIMENT is a TOML file with settings; options override it. Without it, the defaults below
    apply.
    """
    chosen, spec = load_experiment(experiment, smoke, options), parse_method_spec(method)

    from aquila.cli.method_runner import MethodRunner, locked_output, prepare_output
    from aquila.report.labelled_run import LabelledRun
    from aquila.report.progress import ProgressDisplay, make_console
    from aquila.report.results_table import results_table

    spec.create(chosen)  # report a misspelt method before anything else
    connected = trackers.connect()
    prepare_output(spec, out, connected, resume, overwrite)
    console, setting = make_console(), chosen.setting
    problem, parts = setting.problem()
    console.print(setting.describe(len(problem.theta0), [spec.work(chosen)]))
    display = ProgressDisplay(console, setting.rounds, len(spec.label))
    runner = MethodRunner(chosen, problem, parts, resume, display, connected)
    with locked_output(out, [out] if out else [], overwrite):
        records = runner.run(spec, out)
    console.print(results_table([LabelledRun(spec.label, records)], problem.fleet, console.width))
