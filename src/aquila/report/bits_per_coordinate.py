"""Bits per coordinate of real frames against the nominal width of their codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aquila.report.colours import assign_colours, is_aquila
from aquila.report.labelled_run import LabelledRun
from aquila.report.new_figure import new_figure
from aquila.report.style import line_styles, style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from aquila.sim.records import Record

MARKERS = "osD^vPX*"


def bytes_against_width(results: Sequence[LabelledRun]) -> Figure | None:
    """Draw one dot per round: real bits per coordinate of the uploads against their width.

    Records do not contain the entropy of the codes, so real frames, headers included, approximate
    it.
    """
    labels = [result.label for result in results]
    points = [
        [p for record in result.records if (p := width_and_real_bits(record))] for result in results
    ]
    if not any(points):
        return None
    figure = new_figure(7.5, 5)
    axes = figure.add_subplot()
    styles = zip(line_styles(labels), assign_colours(labels), strict=True)
    for label, dots, (style, assigned) in zip(labels, points, styles, strict=True):
        axes.scatter(
            [x for x, _ in dots], [y for _, y in dots], s=34 if is_aquila(label) else 20,
            label=label, color=style["color"], marker=MARKERS[assigned.colour_index % len(MARKERS)],
            alpha=0.55, linewidths=0, zorder=style["zorder"],
        )  # fmt: skip
    least = min(x for dots in points for x, _ in dots)
    axes.axline(
        (least, least), slope=1, color="0.5", linewidth=1, linestyle="--", label="fixed width"
    )
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel="width b, bits per coordinate", ylabel="real frames, bits per coordinate")
    _tick_powers_of_two(axes)
    axes.set_title(
        "Real size of uploads against their width, one dot per round", loc="left", fontsize=11
    )
    style_axes(axes)
    return figure


def _tick_powers_of_two(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=2, numticks=20))
        axis.set_major_formatter("{x:g}")
        axis.minorticks_off()


def width_and_real_bits(record: Record) -> tuple[float, float] | None:
    """Return nominal width and real bits per coordinate of a round's uploads; None without uploads.

    With models of several widths, both are means over devices, not over coordinates.
    """
    width = record.mean_level
    if width is None or not record.paper_bits:
        return None
    return width, width * 8 * record.uplink_bytes / record.paper_bits
