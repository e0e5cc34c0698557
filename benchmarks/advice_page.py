"""The parts of docs/choosing.md that follow from the facts of `aquila advise`."""

import re

from click.testing import CliRunner

from aquila.advice.facts import read_facts
from aquila.cli import main

EXAMPLE = re.compile(r"(```sh\naquila (advise [^\n]*)\n```\n.*?```text\n).*?(```)", re.DOTALL)
TABLE = re.compile(r"(<!-- table -->\n).*?(<!-- end of table -->)", re.DOTALL)
HEADING = (
    "| comparison | dense | method | its accuracy | fewer bytes up | results |",
    "|---|---:|---|---:|---:|---|",
)
TOLERANCE = 0.005


def updated_page(text):
    """Return the page with the output of its example, and the table of comparisons."""
    text = EXAMPLE.sub(lambda found: found[1] + example(found[2]) + found[3], text, count=1)
    return TABLE.sub(lambda found: f"{found[1]}{table(read_facts())}{found[2]}", text)


def example(command):
    """Return what a command prints."""
    runner = CliRunner(env={"COLUMNS": "100"})
    return runner.invoke(main, command.split(), catch_exceptions=False).output


def table(facts):
    """Return the table of comparisons, with empty lines around it."""
    rows = [table_row(study) for study in facts.studies]
    return "\n".join(["", *HEADING, *rows, "", ""])


def table_row(study):
    """Return the row of the method with the fewest bytes that keeps the quality."""
    keeping = [run for run in study.runs if run.gap >= -TOLERANCE]
    best = min(keeping, key=lambda run: run.up)
    dense = study.find(study.dense)
    return (
        f"| {study.model} on {study.task}, {study.split}, {study.rounds} rounds "
        f"| {study.dense_quality:.1%} | `{best.spec}` | {best.quality:.1%} "
        f"| {dense.up / best.up:,.0f} x | `{study.source}` |"
    )
