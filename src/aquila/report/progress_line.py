"""The progress of a run as one line that fits the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.text import Text

from aquila.report.costs import TIME
from aquila.report.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from aquila.sim.records import Record

BARS = "▁▂▃▄▅▆▇█"
MIN_BARS, MAX_BARS = 8, 24
GAP = "  "

LAYOUTS: tuple[tuple[str, ...], ...] = (
    (
        "label", "bars", "round", "loss", "quality", "privacy", "uplink", "simulated", "replies",
        "time",
    ),
    ("label", "bars", "round", "loss", "quality", "privacy", "uplink", "simulated", "time"),
    ("label", "round", "loss", "quality", "privacy", "uplink", "simulated", "time"),
    ("label", "round", "loss", "quality", "privacy", "uplink", "simulated"),
    ("label", "round", "loss", "quality", "privacy", "uplink"),
    ("label", "round", "loss", "privacy", "uplink"),
    ("label", "round", "loss", "privacy"),
)  # fmt: skip
"""Fields of a line, from the widest terminal to the narrowest. Only link models simulate time."""


@dataclass
class RunProgress:
    """Progress of a run: its latest round, and totals over all rounds."""

    label: str
    rounds: int
    clock: Callable[[], float]
    done: int = 0
    losses: list[float] = field(default_factory=list)
    quality: str = ""
    privacy: str = ""
    uplink_bytes: int = 0
    uploads: int = 0
    skips: int = 0
    seconds: float | None = None
    finished: bool = False

    def __post_init__(self) -> None:
        self._start_time = self._last_round_time = self.clock()
        self._resumed_rounds = 0

    def add_resumed(self, records: Sequence[Record]) -> None:
        """Add the rounds of a resumed run; they do not count for its speed."""
        for record in records:
            self.add_record(record)
        self._resumed_rounds = len(records)

    def add_record(self, record: Record) -> None:
        """Add one round."""
        self.done, self._last_round_time = record.round + 1, self.clock()
        if record.loss is not None:
            self.losses.append(record.loss)
        if "perplexity" in record.metrics:
            self.quality = f"ppl {record.metrics['perplexity']:7.2f}"
        elif "test_accuracy" in record.metrics:
            self.quality = f"{record.metrics['test_accuracy']:6.1%}"
        if record.epsilon is not None:
            self.privacy = f"ε {record.epsilon:.3g} at δ {record.delta:g}"
        self.uplink_bytes += record.uplink_bytes
        self.uploads += record.uploads
        self.skips += record.skips
        if record.seconds is not None:
            self.seconds = (self.seconds or 0.0) + record.seconds

    @property
    def time(self) -> str:
        """Time that is left at the speed so far, or the time that a finished run took."""
        new_rounds = self.done - self._resumed_rounds
        if self.finished:
            return f"in {_format_duration(self._last_round_time - self._start_time)}"
        if new_rounds <= 0:
            return ""
        per_round = (self._last_round_time - self._start_time) / new_rounds
        left = per_round * (self.rounds - self.done) - (self.clock() - self._last_round_time)
        return f"{_format_duration(max(0.0, left))} left"

    @property
    def simulated(self) -> str:
        """Time that has passed under the link model; empty without one."""
        return "" if self.seconds is None else f"{TIME.format_total(self.seconds):>8} simulated"

    def fields(self) -> dict[str, str]:
        """Return the fields of a line except the bars, each padded to its final width."""
        position = f"{self.done:>{len(str(self.rounds))}}/{self.rounds}"
        return {
            "label": self.label,
            "round": position,
            "loss": f"loss {_format_loss(self.losses[-1])}" if self.losses else " " * 11,
            "quality": self.quality or " " * 6,
            "privacy": self.privacy,
            "uplink": f"{format_bytes(self.uplink_bytes):>7} up",
            "simulated": self.simulated,
            "replies": f"{self.uploads:>5} sent {self.skips:>4} skipped",
            "time": f"{self.time:<9}",
        }


@dataclass(frozen=True)
class ProgressLine:
    """Progress as a rich renderable: the fields that fit into one line."""

    progress: RunProgress
    label_width: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield format_line(
            self.progress, self.label_width, options.max_width, not options.ascii_only
        )


def format_line(progress: RunProgress, label_width: int, width: int, bars: bool = True) -> Text:
    """Return the line of a run for a terminal of this width."""
    fields = progress.fields()
    fields["label"] = fields["label"].ljust(label_width)
    layouts = [names for names in LAYOUTS if bars or "bars" not in names]
    unused = {name for name in ("simulated", "privacy") if not fields[name]}
    layouts = [tuple(name for name in names if name not in unused) for names in layouts]
    names = next((n for n in layouts if _spare_width(fields, n, width) >= 0), layouts[-1])
    room = min(MAX_BARS, MIN_BARS + _spare_width(fields, names, width))
    text = Text(no_wrap=True, overflow="ellipsis" if bars else "crop", end="")
    for name in names:
        if name == "bars":
            text.append(sparkline(progress.losses, progress.rounds, room), "cyan")
        else:
            text.append(fields[name], "bold" if name == "label" else "")
        text.append(GAP)
    text.rstrip()
    text.truncate(width)
    return text


def sparkline(losses: Sequence[float], rounds: int, width: int) -> str:
    """Return the loss over the rounds as bars on a logarithmic scale; dots are future rounds."""
    width = min(width, rounds)
    cells = (losses[n * rounds // width : (n + 1) * rounds // width] for n in range(width))
    heights = [sum(cell) / len(cell) for cell in cells if cell]
    if min(heights, default=0) > 0:
        heights = [math.log(height) for height in heights]
    low, high = min(heights, default=0), max(heights, default=0)
    step = (high - low) / len(BARS) or 1.0
    marks = (BARS[min(len(BARS) - 1, int((height - low) / step))] for height in heights)
    return "".join(marks).ljust(width, "·")


def _spare_width(fields: dict[str, str], names: Sequence[str], width: int) -> int:
    """Return the columns that are left over; negative if the fields do not fit."""
    needed = sum(MIN_BARS if name == "bars" else len(fields[name]) for name in names)
    return width - needed - len(GAP) * (len(names) - 1)


def _format_loss(loss: float) -> str:
    return f"{loss:6.4f}" if abs(loss) < 10 else f"{loss:6.4g}"


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
