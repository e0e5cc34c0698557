"""Reproduced rows as screen tables, Markdown and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from textwrap import fill

from rich import box
from rich.table import Table

from aquila.report.paper import PaperRow
from aquila.report.reproduction import MethodLine

ReproducedRows = Sequence[tuple[PaperRow, Sequence[MethodLine]]]

COLUMNS = {
    "rounds": "rounds of our run; `40 of 200` if the paper's run is longer",
    "test": "accuracy in percent, or perplexity (PP), of the server's model on all test samples",
    "last": "accuracy on the last training minibatch, which is the accuracy that the paper prints",
    "paper": "the number that the paper prints",
    "b·d": "GiB of the uploads counted as bits per coordinate × coordinates, as in the paper",
    "GiB up, GiB down": "GiB of real frames",
    "up/skip": "replies with a vector / replies without one",
    "saves": "what AQUILA saves compared with the method: by the paper's numbers, by our b·d, "
    "and by real uplink bytes, over the rounds that both ran; `-29%`: AQUILA sends 29 % more; "
    "`x 3`: it sends 3 times as much",
}  # fmt: skip
LEGEND = "".join(f"{name}: {meaning}\n" for name, meaning in COLUMNS.items()).replace("`", "")

OPENING = (
    "For readers of the paper: every number that Table {0} prints, next to our runs with the "
    "same setting. `aquila table {1} --markdown` writes this page. "
    "[The paper's tables and figures](reproduction.md) explains how runs are matched to rows, and "
    "what they show. K is the paper's number of rounds."
)
PAGE_COLUMNS = 100

DIVERGED = 1e5
"""Perplexities from here on are printed in scientific notation."""


def screen_table(row: PaperRow, lines: Sequence[MethodLine]) -> Table:
    """Return a row as a table at most 100 characters wide."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, title_justify="left")
    table.title = row.describe()
    table.caption, table.caption_justify = "\n".join(notes(row, lines)) or None, "left"
    table.add_column("method", overflow="fold", min_width=12)
    for heading in headings(row)[1:]:
        table.add_column(
            heading.replace(" ", "\n").replace("/", "/\n"), justify="right", no_wrap=True
        )
    for line in lines:
        table.add_row(*cells(row, line))
    return table


def markdown(reproduced: ReproducedRows) -> str:
    """Return rows as a Markdown page."""
    number = reproduced[0][0].table
    name = "I" * number
    parts = [f"# Table {name} of the paper, next to our runs", ""]
    parts += [fill(OPENING.format(name, number), PAGE_COLUMNS), ""]
    parts += [_markdown_row(["column", "meaning"]), _markdown_row(["---", "---"])]
    parts += [_markdown_row([f"`{column}`", meaning]) for column, meaning in COLUMNS.items()]
    parts.append("")
    for row, lines in reproduced:
        parts += [f"## {row.describe()}", ""]
        parts += [
            _markdown_row(headings(row)),
            _markdown_row(["---", *["---:"] * (len(headings(row)) - 1)]),
        ]
        parts += [_markdown_row(cells(row, line)) for line in lines]
        for note in notes(row, lines):
            parts += ["", fill(note, PAGE_COLUMNS)]
        parts.append("")
    return "\n".join(parts)


def csv_text(reproduced: ReproducedRows) -> str:
    """Return rows as CSV with full precision; missing numbers are empty fields."""
    flat = [
        {"table": row.table, "row": row.title, "paper_rounds": row.rounds, **_csv_fields(line)}
        for row, lines in reproduced
        for line in lines
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def headings(row: PaperRow) -> list[str]:
    """Return the column headings of a row's table."""
    quality = "PP" if row.is_text else "acc.%"
    return [
        "method", "rounds", f"test {quality}", "last acc.%", f"paper {quality}", "ours b·d",
        "paper b·d", "GiB up", "GiB down", "up/skip", "saves paper", "saves b·d", "saves real",
    ]  # fmt: skip


def cells(row: PaperRow, line: MethodLine) -> list[str]:
    """Return the formatted cells of a line."""
    return [
        line.method,
        rounds_text(row, line),
        _format_number(line.test, 2 if row.is_text else 1),
        _format_number(line.last_minibatch, 1),
        _format_number(line.printed, 2),
        _format_number(line.paper_gib, 2),
        _format_number(line.printed_gib, 2),
        _format_number(line.uplink_gib, _digits(line.uplink_gib or 0)),
        _format_number(line.downlink_gib, 1),
        "-" if line.uploads is None else f"{line.uploads}/{line.skips}",
        _format_saving(line.printed_saving),
        _format_saving(line.paper_saving),
        _format_saving(line.uplink_saving),
    ]


def rounds_text(row: PaperRow, line: MethodLine) -> str:
    """Return our number of rounds, and the paper's if it differs."""
    if line.rounds is None:
        return "not run"
    return str(line.rounds) if line.rounds == row.rounds else f"{line.rounds} of {row.rounds}"


def notes(row: PaperRow, lines: Sequence[MethodLine]) -> list[str]:
    """Return notes on a row: its own note, and how runs differ from the paper's setting."""
    found = [row.note] if row.note else []
    differing = sorted((line for line in lines if line.differs), key=lambda line: line.differs)
    for differs, group in groupby(differing, key=lambda line: line.differs):
        found.append(f"{', '.join(line.method for line in group)}: {'; '.join(differs)}")
    return found


def _csv_fields(line: MethodLine) -> Mapping[str, object]:
    return {**asdict(line), "differs": "; ".join(line.differs)}


def _markdown_row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _digits(gib: float) -> int:
    """Return the number of decimals, more for small values."""
    return 2 if gib >= 1 else 3 if gib >= 0.01 else 5


def _format_number(value: float | None, digits: int) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if value < DIVERGED else f"{value:.1e}"


def _format_saving(saving: float | None) -> str:
    """Return the saving in percent, or a factor if AQUILA sends at least twice as much."""
    if saving is None:
        return "-"
    return f"{saving:.0%}" if saving > -1 else f"x {1 - saving:.1f}"
