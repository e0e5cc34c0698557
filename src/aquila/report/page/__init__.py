"""A report of runs as one self-contained HTML page that works offline."""

from collections.abc import Sequence
from pathlib import Path

from aquila.report.page.document import render
from aquila.report.page.figures import ClassCounts, ReadClassCounts
from aquila.report.page.reader import PageRuns, read_runs
from aquila.report.page.runs import PageRun
from aquila.runtime.files import atomic_write, make_folder

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
    """Write the report of the runs atomically and return its path."""
    text = render(found, commands, class_counts)
    make_folder(path.parent)
    atomic_write(path, text.encode())
    return path
