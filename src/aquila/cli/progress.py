"""Live progress: a row a method on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

if TYPE_CHECKING:
    from aquila.sim.records import Record

LINES_A_RUN = 4
FILE_WIDTH = 120


def make_console() -> Console:
    """Return a console as wide as the terminal, or wide enough for the tables in a file."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=FILE_WIDTH)


class Watch:
    """Shows how the runs of a command are doing."""

    def __init__(self, console: Console, rounds: int, label_width: int) -> None:
        self.console = console
        self.rounds = rounds
        self.label_width = label_width
        self._uplink = self._skips = 0
        self._label = ""
        self._task: TaskID | None = None
        self._progress: Progress | None = None
        if console.is_terminal:
            whole = Column(no_wrap=True)
            self._progress = Progress(
                TextColumn("[bold]{task.description}", table_column=whole),
                BarColumn(bar_width=12),
                MofNCompleteColumn(table_column=whole),
                TextColumn("{task.fields[news]}", table_column=whole),
                TimeRemainingColumn(compact=True, table_column=whole),
                console=console,
            )

    def __enter__(self) -> Watch:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress:
            self._progress.stop()

    def begin(self, label: str) -> None:
        """Start watching another run."""
        self._label = label.ljust(self.label_width)
        self._uplink = self._skips = 0
        if self._progress:
            self._task = self._progress.add_task(self._label, total=self.rounds, news="")

    def sent_before(self, records: Sequence[Record]) -> None:
        """Count what was sent in earlier rounds of a run that is being resumed."""
        for record in records:
            self._count(record)

    def show(self, record: Record) -> None:
        """Show one more round."""
        self._count(record)
        said = news(record, self._uplink, self._skips)
        if self._progress and self._task is not None:
            self._progress.update(self._task, completed=record.round + 1, news=said)
        elif (record.round + 1) % max(1, self.rounds // LINES_A_RUN) == 0:
            position = f"round {record.round + 1:>{len(str(self.rounds))}}/{self.rounds}"
            self.console.print(f"{self._label}  {position}  {said}")

    def _count(self, record: Record) -> None:
        self._uplink += record.uplink_bytes
        self._skips += record.skips

    def say(self, sentence: str) -> None:
        """Print a sentence about the run above its progress."""
        self.console.print(f"{self._label.rstrip()}: {sentence}")


def news(record: Record, uplink_bytes: int, skips: int) -> str:
    """Return the numbers worth watching: of the last round, and of all of them together."""
    parts = [] if record.loss is None else [f"loss {record.loss:.4f}"]
    if "test_accuracy" in record.metrics:
        parts.append(f"{record.metrics['test_accuracy']:6.1%}")
    parts.append(f"{uplink_bytes / 2**20:.2f} MiB up")
    if skips:
        parts.append(f"{skips} skips")
    return "  ".join(parts)
