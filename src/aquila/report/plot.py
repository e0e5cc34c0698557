"""Figures of results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from aquila.report.figure import new_figure
from aquila.report.table import MIB, Result


def plot_loss_against_uplink(results: Sequence[Result], path: Path) -> Path:
    """Draw training loss against real bytes sent, one line a run, and return the path."""
    figure = new_figure(8, 5)
    axes = figure.add_subplot()
    for number, result in enumerate(results):
        points = [
            (sent / MIB, r.loss)
            for sent, r in zip(
                accumulate(r.uplink_bytes for r in result.records), result.records, strict=True
            )
            if r.loss is not None
        ]
        axes.plot(*zip(*points, strict=True), label=result.label, **_style(result, number))
    if any(result.records for result in results):
        axes.set(xscale="log", yscale="log")
    axes.set(xlabel="uplink, MiB of real frames", ylabel="training loss")
    axes.grid(which="major", alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    return path


def _style(result: Result, number: int) -> dict[str, Any]:
    """Strong lines for AQUILA, thin ones for the rest; dashes tell the second ten colours apart."""
    own = result.label.startswith("aquila")
    return {
        "color": f"C{number % 10}",
        "linewidth": 2.5 if own else 1.3,
        "linestyle": "-" if number < 10 else "--",
        "zorder": 3 if own else 2,
    }
