"""`aquila run`: one method."""

from pathlib import Path
from typing import Any

import click

from aquila.cli.setting import Setting, setting_options
from aquila.cli.spec import parse_spec


@click.command()
@click.argument("method", default="aquila")
@setting_options
@click.option("--out", type=click.Path(path_type=Path), help="Folder for records and checkpoints.")
@click.option("--resume", is_flag=True, help="Go on with the run in the folder.")
def run(method: str, out: Path | None, resume: bool, **options: Any) -> None:
    """Train with one METHOD (default: aquila) on the digits.

    METHOD is a name that `aquila methods` lists, with parameters after a colon if wanted:
    aquila:b_min=2,beta=0.1
    """
    from aquila.cli.progress import Watch, make_console
    from aquila.cli.training import train
    from aquila.report.table import Result, results_table

    setting, spec, console = Setting(**options), parse_spec(method), make_console()
    spec.create(setting.method_defaults)  # a misspelt method is reported before anything else
    problem = setting.problem()
    console.print(setting.describe(len(problem.theta0)))
    with Watch(console, setting.rounds, len(spec.label)) as watch:
        records = train(spec, setting, problem, out, resume, watch)
    console.print(results_table([Result(spec.label, records)], len(problem.theta0)))
