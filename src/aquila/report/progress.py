"""Progress of runs: one live line per run on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from aquila.report.progress_line import GAP, ProgressLine, RunProgress

if TYPE_CHECKING:
    from aquila.sim.records import Record

LINES_PER_RUN = 4
NON_TERMINAL_WIDTH = 120


def make_console() -> Console:
    """Return a console as wide as the terminal, or wide enough for tables in a file."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=NON_TERMINAL_WIDTH)


class ProgressDisplay:
    """Shows the progress of the runs of a command, one after another."""

    def __init__(
        self,
        console: Console,
        rounds: int,
        label_width: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console
        self.rounds = rounds
        self.label_width = label_width
        self.clock = clock

    @contextmanager
    def show_run(self, label: str) -> Iterator[tuple[RunProgress, Callable[[Record], None]]]:
        """Show a run; yield its progress and a function to call with each record.

        On a terminal the line is updated while the run is in progress, and stays afterwards.
        """
        progress = RunProgress(label, self.rounds, self.clock)
        if not self.console.is_terminal or self.console.is_dumb_terminal:
            yield progress, lambda record: self._print_line(progress, record)
            return
        row = ProgressLine(progress, self.label_width)
        try:
            with Live(row, console=self.console, refresh_per_second=5):
                try:
                    yield progress, progress.add_record
                finally:
                    progress.finished = True
        finally:
            self.console.show_cursor()  # an interrupt during setup would leave it hidden

    def print_message(self, label: str, sentence: str) -> None:
        """Print a sentence about a run."""
        self.console.print(f"{label}: {sentence}", markup=False)

    def _print_line(self, progress: RunProgress, record: Record) -> None:
        progress.add_record(record)
        if progress.done % max(1, self.rounds // LINES_PER_RUN) == 0:
            fields = progress.fields()
            # a file may allow ASCII only
            fields["privacy"] = fields["privacy"].replace("ε", "epsilon").replace("δ", "delta")
            names = ["loss", "quality", "uplink", "replies"]
            names += [name for name in ("simulated", "privacy") if fields[name]]
            names += ["time"] if progress.done < self.rounds else []
            label = fields["label"].ljust(self.label_width)
            parts = (label, f"round {fields['round']}", *(fields[name] for name in names))
            self.console.print(GAP.join(parts).rstrip(), markup=False)
