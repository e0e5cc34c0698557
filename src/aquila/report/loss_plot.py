"""The figure that `aquila compare` draws."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from aquila.report.curves import Series, draw_curves
from aquila.report.labelled_run import LabelledRun
from aquila.report.style import save_figure
from aquila.report.units import format_byte_tick


def plot_loss_against_uplink(results: Sequence[LabelledRun], path: Path) -> Path:
    """Draw training loss against real uplink bytes, one line per run, and return the path."""
    curves = []
    for result in results:
        sent = accumulate(r.uplink_bytes for r in result.records)
        both = zip(sent, result.records, strict=True)
        points = [(total, r.loss) for total, r in both if r.loss is not None]
        curves.append(Series(result.label, points))
    figure = draw_curves(
        curves,
        "uplink, real frames",
        "training loss",
        xscale="log",
        yscale="log",
        xformat=format_byte_tick,
    )
    return save_figure(figure, path)
