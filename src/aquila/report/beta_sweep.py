"""Sweeps over AQUILA's beta: the paper's Figures 4 and 5."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aquila.report.curves import Series, draw_curves, quality_metric
from aquila.report.labelled_run import LabelledRun
from aquila.report.style import sweep_styles
from aquila.report.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from aquila.sim.records import Record

BETA = re.compile(r"aquila beta=(\S+)")


def loss_by_beta(results: Sequence[LabelledRun]) -> Figure | None:
    """Draw Figure 4: training loss per round, one line per beta."""
    curves = _curves_by_beta(results, lambda record: record.loss)
    if not curves:
        return None
    title = "Training loss at several β (the paper's Figure 4)"
    styles = sweep_styles(len(curves))
    return draw_curves(curves, "round", "training loss", title=title, yscale="log", styles=styles)


def quality_by_beta(results: Sequence[LabelledRun]) -> Figure | None:
    """Draw Figure 5: test accuracy or perplexity per round, one line per beta."""
    metric, label, times = quality_metric(results)

    def quality(record: Record) -> float | None:
        return times * record.metrics[metric] if metric in record.metrics else None

    curves = _curves_by_beta(results, quality)
    if not any(curve.points for curve in curves):
        return None
    return draw_curves(
        curves,
        "round",
        label if times == 1 else f"{label}, %",
        title=f"{label.capitalize()} at several β (the paper's Figure 5)",
        styles=sweep_styles(len(curves)),
    )


def _curves_by_beta(
    results: Sequence[LabelledRun], value: Callable[[Record], float | None]
) -> list[Series]:
    """Return the runs that differ only in beta, sorted by it, labelled with their uplink."""
    by_beta = {float(m[1]): r for r in results if (m := BETA.fullmatch(r.label))}
    if len(by_beta) < 2:
        return []
    return [
        Series(
            f"β = {beta:g}: {format_bytes(result.uplink_bytes)}",
            [(r.round + 1, y) for r in result.records if (y := value(r)) is not None],
        )
        for beta, result in sorted(by_beta.items())
    ]
