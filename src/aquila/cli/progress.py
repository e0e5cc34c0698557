"""Live progress: a line a run on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from aquila.cli.standing import GAP, Row, Standing

if TYPE_CHECKING:
    from aquila.sim.records import Record

LINES_A_RUN = 4
FILE_WIDTH = 120


def make_console() -> Console:
    """Return a console as wide as the terminal, or wide enough for the tables in a file."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=FILE_WIDTH)


class Watch:
    """Shows how the runs of a command are doing, one after the other."""

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
    def run(self, label: str) -> Iterator[tuple[Standing, Callable[[Record], None]]]:
        """Watch a run: yield how it stands, and what to call after each of its rounds.

        On a terminal its line is renewed while it runs and stays where it is afterwards.
        """
        standing = Standing(label, self.rounds, self.clock)
        if not self.console.is_terminal or self.console.is_dumb_terminal:
            yield standing, lambda record: self._tell(standing, record)
            return
        row = Row(standing, self.label_width)
        try:
            with Live(row, console=self.console, refresh_per_second=5):
                try:
                    yield standing, standing.count
                finally:
                    standing.over = True
        finally:
            self.console.show_cursor()  # which an interrupt while rich sets up would leave hidden

    def say(self, label: str, sentence: str) -> None:
        """Print a sentence about a run."""
        self.console.print(f"{label}: {sentence}", markup=False)

    def _tell(self, standing: Standing, record: Record) -> None:
        standing.count(record)
        if standing.done % max(1, self.rounds // LINES_A_RUN) == 0:
            said = standing.fields()
            names = ["loss", "quality", "uplink", "replies"]
            names += ["time"] if standing.done < self.rounds else []
            label = said["label"].ljust(self.label_width)
            parts = (label, f"round {said['round']}", *(said[name] for name in names))
            self.console.print(GAP.join(parts).rstrip(), markup=False)
