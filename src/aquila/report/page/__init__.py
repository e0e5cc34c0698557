"""The report of runs as one HTML page that opens anywhere, without a network."""

from collections.abc import Sequence
from pathlib import Path

from aquila.report.page.document import render
from aquila.report.page.figures import ClassCounts, ReadClassCounts
from aquila.report.page.runs import PageRun, PageRuns, read_runs

__all__ = [
    "ClassCounts",
    "PageRun",
    "PageRuns",
    "ReadClassCounts",
    "read_runs",
    "render",
    "write_page",
]


def write_page(
    found: PageRuns, path: Path, commands: Sequence[str], class_counts: ReadClassCounts
) -> Path:
    """Write the report of the runs, all at once or not at all, and return its path."""
    text = render(found, commands, class_counts)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    temporary.replace(path)
    return path
