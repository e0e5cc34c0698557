"""The table of results that `aquila run` and `aquila compare` print."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from rich import box
from rich.table import Table

from aquila.core.fleet import Fleet
from aquila.core.packet import Dense, Packet
from aquila.core.wire import pack
from aquila.sim.records import Record

MIB = 2**20
HEADINGS = (
    "accuracy", "loss", "up/skip", "level", "uplink", "paper", "saving"
)  # fmt: skip


MIN_ROUNDS_FOR_TREND = 10
"""Rounds after which the loss should have decreased."""

NARROW_WIDTH = 70
WIDE_ONLY_COLUMNS = ("level", "paper")
"""Columns that a narrow terminal omits."""

EXTRA_METRICS = {"local_accuracy": ("local", "{:.1%}"), "perplexity": ("perplexity", "{:.4g}")}
"""Heading and format of metrics that only some runs have."""


@dataclass(frozen=True)
class RunResult:
    """Label and records of one run; `stopped` if it ended before its last round."""

    label: str
    records: Sequence[Record]
    stopped: bool = False

    @cached_property
    def uplink_bytes(self) -> int:
        """Total bytes sent by the devices."""
        return sum(r.uplink_bytes for r in self.records)

    @cached_property
    def downlink_bytes(self) -> int:
        """Total bytes sent by the server."""
        return sum(r.downlink_bytes for r in self.records)

    @cached_property
    def paper_bits(self) -> int:
        """Total bits per coordinate × coordinates, as papers count the uplink."""
        return sum(r.paper_bits for r in self.records)

    @cached_property
    def uploads(self) -> int:
        """Number of replies with a vector."""
        return sum(r.uploads for r in self.records)

    @cached_property
    def skips(self) -> int:
        """Number of replies without a vector."""
        return sum(r.skips for r in self.records)

    @property
    def mean_level(self) -> float | None:
        """Mean bits per coordinate over all uploads; None without uploads."""
        levels = [level for r in self.records for level in r.levels.values()]
        return sum(levels) / len(levels) if levels else None

    @property
    def loss_increased(self) -> bool:
        """Whether the last loss is above the first one, for a run of at least 10 rounds."""
        losses = [r.loss for r in self.records if r.loss is not None]
        return len(losses) >= MIN_ROUNDS_FOR_TREND and not losses[-1] <= losses[0]

    def last_metric(self, name: str) -> float | None:
        """Return the latest value of a metric; None if it was never measured."""
        return next((r.metrics[name] for r in reversed(self.records) if name in r.metrics), None)


def results_table(results: Sequence[RunResult], fleet: Fleet, width: int = 100) -> Table:
    """Return one row per run: quality, traffic and saving, for a terminal of this width."""
    shown = [name for name in HEADINGS if width >= NARROW_WIDTH or name not in WIDE_ONLY_COLUMNS]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption_justify="left")
    table.add_column("method", overflow="fold")
    extra = [
        name for name in EXTRA_METRICS if any(r.last_metric(name) is not None for r in results)
    ]
    for heading in (*shown, *(EXTRA_METRICS[name][0] for name in extra)):
        table.add_column(heading, justify="right", no_wrap=True, min_width=len(heading))
    for result in results:
        cells = _format_cells(result, fleet)
        label = result.label + (" (stopped)" if result.stopped else "")
        texts = (cells.get(name, "-") for name in shown)
        table.add_row(label, *texts, *(_format_extra(result, name) for name in extra))
    table.caption = (
        "up/skip: replies with / without a vector.\n"
        "level: mean bits per coordinate. saving: dense uplink ÷ this uplink.\n"
        "uplink: MiB of real frames. paper: MiB counted as bits × coordinates."
    )
    worse = [result.label for result in results if result.loss_increased]
    if worse:
        table.caption += (
            f"\nLoss above its first value: {', '.join(worse)}. A smaller alpha may help."
        )
    return table


def _format_extra(result: RunResult, name: str) -> str:
    value = result.last_metric(name)
    return "-" if value is None else EXTRA_METRICS[name][1].format(value)


def dense_bytes(result: RunResult, fleet: Fleet) -> int:
    """Return the bytes of the same replies if each were an uncompressed vector."""
    replies = Counter(fleet.groups[device] for r in result.records for device in r.uplink)
    return sum(
        count * len(pack(Packet(0, Dense(torch.zeros(fleet.dimension_of_group(group))))))
        for group, count in replies.items()
    )


def _format_cells(result: RunResult, fleet: Fleet) -> dict[str, str]:
    if not result.records:
        return {}
    accuracy = result.last_metric("test_accuracy")
    loss = result.records[-1].loss
    ratio = dense_bytes(result, fleet) / result.uplink_bytes
    return {
        "accuracy": "-" if accuracy is None else f"{accuracy:.1%}",
        "loss": "-" if loss is None else f"{loss:.4g}",
        "up/skip": f"{result.uploads}/{result.skips}",
        "level": "-" if result.mean_level is None else f"{result.mean_level:.2f}",
        "uplink": f"{result.uplink_bytes / MIB:.3f}",
        "paper": f"{result.paper_bits / 8 / MIB:.3f}",
        "saving": f"{ratio:.1f} x",
    }
