"""Line plots of several runs in one figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from aquila.report.labelled_run import LabelledRun
from aquila.report.new_figure import new_figure
from aquila.report.style import line_styles, style_axes

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Scale = Literal["linear", "log"]
MIN_LOG_RATIO = 3
"""Smallest ratio of the largest to the smallest value for which a log scale is used."""


@dataclass(frozen=True)
class Series:
    """Label and points of one line."""

    label: str
    points: Sequence[tuple[float, float]]


def draw_curves(
    curves: Sequence[Series],
    xlabel: str,
    ylabel: str,
    *,
    title: str = "",
    xscale: Scale = "linear",
    yscale: Scale = "linear",
    xformat: Callable[[float], str] = "{:g}".format,
    styles: Sequence[dict[str, Any]] | None = None,
) -> Figure:
    """Draw one line per curve, in the colours of the methods unless styles are given.

    `xformat` returns the text of a tick of the horizontal axis.
    """
    figure = new_figure(8, 5)
    axes = figure.add_subplot()
    styles = line_styles([curve.label for curve in curves]) if styles is None else styles
    for curve, style in zip(curves, styles, strict=True):
        x, y = zip(*curve.points, strict=True) if curve.points else ((), ())
        axes.plot(x, y, label=curve.label, **style)
    points = [point for curve in curves for point in curve.points]
    axes.xaxis.set_major_formatter(lambda x, _: xformat(x))
    if xscale == "log":
        set_log_scale(axes.xaxis, axes.set_xscale, [x for x, _ in points], xformat)
    if yscale == "log":
        set_log_scale(axes.yaxis, axes.set_yscale, [y for _, y in points])
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, loc="left", fontsize=11)
    style_axes(axes)
    return figure


def set_log_scale(
    axis: Axis,
    scale: Callable[..., None],
    values: Sequence[float],
    text: Callable[[float], str] = "{:g}".format,
) -> None:
    """Give an axis a log scale, with a linear part near zero if some values are zero.

    The axis stays linear if a value is negative or all values are of similar size.
    """
    positive = [value for value in values if value > 0]
    if not positive or min(values) < 0 or max(values) < MIN_LOG_RATIO * min(values):
        return
    if len(positive) == len(values):
        scale("log")
        span = max(values) / min(values)
        between = "23457" if span < 10 else "25" if span < 30 else ""
        axis.set_minor_formatter(lambda x, _: text(x) if f"{x:e}"[0] in between else "")
    else:
        scale("symlog", linthresh=10 ** math.floor(math.log10(min(positive))), linscale=0.5)
    axis.set_major_formatter(lambda x, _: text(x))


def quality_metric(results: Sequence[LabelledRun]) -> tuple[str, str, float]:
    """Return name, label and display factor of the metric that compares the runs."""
    if any(result.last_metric("perplexity") is not None for result in results):
        return "perplexity", "test perplexity", 1.0
    return "test_accuracy", "test accuracy", 100.0
