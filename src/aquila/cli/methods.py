"""`aquila methods`: the catalogue of methods, with parameters and papers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from aquila.methods.parts.factory import MethodFactory


@click.command()
@click.argument("name", required=False)
@click.option("--markdown", is_flag=True, help="Print the list or the method as Markdown.")
def methods(name: str | None, markdown: bool) -> None:
    """List all methods, or describe method NAME."""
    from aquila.cli.method_reference import overview, page
    from aquila.core.parameter import spelling_hint
    from aquila.methods import METHODS
    from aquila.report.progress import make_console

    console = make_console()
    if name is not None and name not in METHODS:
        raise ValueError(f"there is no method {name!r}{spelling_hint(name, METHODS)}")
    if markdown:
        click.echo(overview(METHODS.values()) if name is None else page(METHODS[name]))
    elif name is None:
        console.print(methods_table(list(METHODS.values())))
        console.print(
            "* partly reconstructed where the paper is incomplete; see `aquila methods NAME`"
        )
    else:
        print_method(METHODS[name], console)


def methods_table(entries: list[MethodFactory]) -> Table:
    """Return a table of all methods."""
    from rich.table import Table

    table = Table(title="Methods", title_justify="left", show_lines=True)
    for heading in ("method", "what it does", "parameters and defaults", "paper"):
        table.add_column(heading)
    for entry in entries:
        defaults = "\n".join(f"{p.name}={p.default}" for p in entry.parameters.values())
        mark = " *" if entry.reconstruction else ""
        table.add_row(f"[bold]{entry.name}[/bold]{mark}", entry.summary, defaults, entry.paper)
    return table


def print_method(entry: MethodFactory, console: Console) -> None:
    """Print everything that the catalogue has about one method."""
    from rich.table import Table

    console.print(f"[bold]{entry.name}[/bold]: {entry.summary}\n")
    facts = [("paper", entry.paper), ("if a reply is lost", entry.lost_reply)]
    if entry.reconstruction:
        facts.append(("reconstruction", entry.reconstruction))
    grid = Table.grid(padding=(0, 2))
    for heading, text in facts:
        grid.add_row(f"[bold]{heading}[/bold]", text)
    console.print(grid)
    table = Table(title="\nParameters", title_justify="left")
    for heading in ("parameter", "default", "allowed", "meaning"):
        table.add_column(heading)
    for p in entry.parameters.values():
        table.add_row(p.name, str(p.default), str(p), p.help)
    console.print(table)
