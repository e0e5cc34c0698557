"""`aquila table`: the tables of the paper next to our runs."""

from pathlib import Path

import click

from aquila.cli.broken_runs import warn_broken_run
from aquila.cli.named_path import NamedPath


@click.command()
@click.argument("number", type=click.Choice(["2", "3"]), metavar="2|3")
@click.option(
    "--results",
    type=NamedPath(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Folder that contains the runs, at any depth.",
)
@click.option("--csv", "form", flag_value="csv", help="Print comma-separated values.")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown.")
def table(number: str, results: Path, form: str | None) -> None:
    """Print Table 2 or 3 of the paper next to the results of runs.

    A run belongs to a row if it has the same data, model, split, devices and widths, and for AQUILA
    the same beta. It must use all samples and devices, lose no replies and send whole models.
    """
    from aquila.report.paper import paper_rows
    from aquila.report.progress import make_console
    from aquila.report.reproduction import method_lines
    from aquila.report.reproduction_view import LEGEND, csv_text, markdown, screen_table
    from aquila.report.runs import find_runs

    runs = find_runs(results, warn_broken_run)
    reproduced = [(row, method_lines(row, runs)) for row in paper_rows(int(number))]
    if form is not None:
        click.echo({"csv": csv_text, "markdown": markdown}[form](reproduced), nl=False)
        return
    console = make_console()
    for row, made in reproduced:
        console.print(screen_table(row, made))
    console.print(LEGEND)
