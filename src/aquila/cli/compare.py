"""`aquila compare`: train with several methods; write a table, a figure and a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aquila.cli.method_spec import MethodSpec, parse_method_spec
from aquila.cli.named_path import NamedPath
from aquila.cli.option_sections import CommandWithSections
from aquila.cli.report import REPORT_FILE, write_report
from aquila.cli.setting_options import load_experiment, setting_options
from aquila.cli.tracker_options import TrackerOptions, tracker_options

if TYPE_CHECKING:
    from aquila.cli.method_runner import MethodRunner
    from aquila.report.labelled_run import LabelledRun
    from aquila.sim.experiment import Experiment

FIGURE_FILE = "loss_against_uplink.png"
DEFAULT_METHODS = (
    "aquila", "aquila:level_rule=tight", "aquila_peak", "aquila_topk", "aquila_dither", "fedsgd",
    "fedavg", "fedpaq", "qsgd", "laq", "ef21", "eden:density=0.1", "ef_signsgd", "sparseloco",
)  # fmt: skip
"""Methods without --method, --all and a list in EXPERIMENT: one or two of each kind."""
VARIANTS: dict[str, tuple[dict[str, object], ...]] = {
    "aquila": ({}, {"b_min": 2}, {"level_rule": "tight"}),
    "qsgd": ({}, {"bucket": 512}),
    "marina": ({}, {"p_rule": "authors"}),
    "eden": ({}, {"density": 0.1}),
    "signsgd": ({"alpha": 0.01},),  # its steps do not shrink with the gradient
}
"""Parameters of the runs of --all; a method that is not listed runs once with its defaults."""


@click.command(cls=CommandWithSections)
@setting_options
@click.option(
    "-m", "--method", "methods", multiple=True, metavar="METHOD",
    help="A method, as in `aquila run`; repeatable.  [default: those of EXPERIMENT, or a dozen]",
)  # fmt: skip
@click.option("--all", "every_method", is_flag=True, help="Compare all methods.")
@click.option(
    "--out",
    type=NamedPath(path_type=Path),
    default=Path("runs/compare"),
    show_default=True,
    help="Folder for records, checkpoints, the figure and the report.",
)
@click.option("--resume", is_flag=True, help="Continue the runs in the --out folder, if any.")
@click.option("--overwrite", is_flag=True, help="Delete the runs in the --out folder first.")
@tracker_options
def compare(
    experiment: Path | None,
    smoke: bool,
    methods: tuple[str, ...],
    every_method: bool,
    out: Path,
    resume: bool,
    overwrite: bool,
    trackers: TrackerOptions,
    **options: str | None,
) -> None:
    """Train with several methods and compare them.

    All methods get the same data, devices and seed. EXPERIMENT is a TOML file with settings;
    options override it. Without it, the defaults below apply.
    """
    chosen = load_experiment(experiment, smoke, options)

    from aquila.cli.method_runner import MethodRunner, locked_output, prepare_output
    from aquila.report.progress import ProgressDisplay, make_console
    from aquila.report.results_table import results_table
    from aquila.sim.run_folder import RunFolder

    specs = checked_specs(methods, every_method, chosen)
    connected = trackers.connect()
    RunFolder(out).check_free()
    folders = [out / spec.file_name for spec in specs]
    for spec, folder in zip(specs, folders, strict=True):
        prepare_output(spec, folder, connected, resume, overwrite)
    console, setting = make_console(), chosen.setting
    problem, parts = setting.problem()
    console.print(setting.describe(len(problem.theta0), [spec.work(chosen) for spec in specs]))
    display = ProgressDisplay(console, setting.rounds, max(len(spec.label) for spec in specs))
    runner = MethodRunner(chosen, problem, parts, resume, display, connected)
    with locked_output(out, folders, overwrite):
        results = [
            run_method(spec, runner, folder) for spec, folder in zip(specs, folders, strict=True)
        ]
        console.print(results_table(results, problem.fleet, console.width))
        for line in draw_and_report(results, folders, out):
            console.print(line)


def checked_specs(
    methods: Sequence[str], every_method: bool, experiment: Experiment
) -> list[MethodSpec]:
    """Return the methods to compare: the given ones, those of the experiment, or the default ones.

    A misspelt or repeated method raises ValueError.
    """
    if every_method and methods:
        raise ValueError("--all compares all methods; leave out --all or --method")
    named = () if every_method else methods or experiment.compare
    if named:
        specs = [parse_method_spec(text) for text in named]
    else:
        specs = fitting_specs(all_method_specs() if every_method else default_specs(), experiment)
    for number, spec in enumerate(specs):
        spec.create(experiment)
        if spec in specs[:number]:
            raise ValueError(f"method {spec.label} is given twice")
    return specs


def default_specs() -> list[MethodSpec]:
    """Return the methods that are compared if none is named."""
    return [parse_method_spec(text) for text in DEFAULT_METHODS]


def all_method_specs() -> list[MethodSpec]:
    """Return every method, some of them in several variants."""
    from aquila.methods import METHODS

    return [
        MethodSpec(name, parameters) for name in METHODS for parameters in VARIANTS.get(name, ({},))
    ]


def fitting_specs(specs: Sequence[MethodSpec], experiment: Experiment) -> list[MethodSpec]:
    """Return the methods that fit the links and the training, and warn about the others."""
    from aquila.core.method import needs_links
    from aquila.methods import METHODS

    fitting = []
    for spec in specs:
        if experiment.setting.options.link == "" and needs_links(METHODS[spec.name]().server):
            click.echo(
                f"Warning: {spec.label} is left out, because it needs a link model: set --link",
                err=True,
            )
            continue
        try:
            spec.check_training(experiment)
            fitting.append(spec)
        except ValueError:
            if "work" in METHODS[spec.name].parameters:
                raise
            click.echo(
                f"Warning: {spec.label} is left out, because it takes no local steps", err=True
            )
    return fitting


def draw_and_report(
    results: Sequence[LabelledRun], folders: Sequence[Path], out: Path
) -> Iterator[str]:
    """Write the figure, if matplotlib is installed, and the report; yield a line about each."""
    from aquila.report.loss_plot import plot_loss_against_uplink
    from aquila.report.new_figure import MissingMatplotlibError

    try:
        yield f"figure: {plot_loss_against_uplink(results, out / FIGURE_FILE)}"
    except MissingMatplotlibError as error:
        click.echo(f"Warning: no figure: {error}", err=True)
    if any(result.records for result in results):
        yield f"report: {write_report(folders, out / REPORT_FILE)}"


def run_method(spec: MethodSpec, runner: MethodRunner, folder: Path) -> LabelledRun:
    """Run one method. If it diverges, print why and return the records so far."""
    from aquila.report.labelled_run import LabelledRun
    from aquila.runtime.nan_guard import NonFiniteError
    from aquila.sim.records import read_records

    try:
        return LabelledRun(spec.label, runner.run(spec, folder))
    except NonFiniteError as error:
        runner.display.print_message(spec.label, f"stopped: {error}")
        return LabelledRun(spec.label, read_records(folder), stopped=True)
