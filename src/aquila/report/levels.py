"""Heat maps of the level that each device used in each round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aquila.report.labelled_run import LabelledRun
from aquila.report.new_figure import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

LevelArray = np.ndarray[Any, np.dtype[np.float64]]
NO_UPLOAD, NO_REPLY = 0.0, float("nan")
BELOW_ANY_LEVEL = 1e-9
"""Stands for "no upload" on the log colour scale: positive, and below every level."""
MAX_TICKS = 8
TICK_LEVELS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def levels_over_time(results: Sequence[LabelledRun]) -> Figure | None:
    """Draw a map of devices by rounds for each run whose levels vary or whose devices skip."""
    shown = [(result.label, level_map(result)) for result in results]
    shown = [(label, levels) for label, levels in shown if _varies(levels)]
    sent = [levels[levels > NO_UPLOAD] for _, levels in shown]
    if not any(part.size for part in sent):
        return None
    columns = 1 if len(shown) == 1 else 2
    rows = -(-len(shown) // columns)
    figure = new_figure(5.5 * columns, 0.6 + 2.1 * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    colors = _colors(np.concatenate(sent))
    for axes, (label, levels) in zip(panels, shown, strict=False):
        _draw_map(axes, label, levels, colors)
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    _add_colour_bar(figure, panels, colors)
    figure.suptitle(
        "Level of every upload (grey: no upload, white: no reply)", x=0.01, ha="left", fontsize=11
    )
    return figure


def level_map(result: LabelledRun) -> LevelArray:
    """Return levels by device and round: 0 for no upload, NaN for no reply."""
    devices = 1 + max((d for r in result.records for d in r.uplink), default=-1)
    levels = np.full((devices, len(result.records)), NO_REPLY)
    for column, record in enumerate(result.records):
        for device in record.uplink:
            levels[device, column] = record.levels.get(device, NO_UPLOAD)
    return levels


def _varies(levels: LevelArray) -> bool:
    return len(np.unique(levels[~np.isnan(levels)])) > 1


def _colors(sent: LevelArray) -> ScalarMappable:
    """Return one log colour scale for all maps."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm

    scale = colormaps["viridis_r"].with_extremes(under="0.85", bad="white")
    return ScalarMappable(LogNorm(sent.min(), max(sent.max(), sent.min() + 1)), scale)


def _draw_map(axes: Axes, label: str, levels: LevelArray, colors: ScalarMappable) -> None:
    from matplotlib.ticker import MaxNLocator

    right, top = levels.shape[1] + 0.5, len(levels) - 0.5
    shades = colors.to_rgba(np.where(levels == NO_UPLOAD, BELOW_ANY_LEVEL, levels))
    axes.imshow(
        shades, aspect="auto", interpolation="nearest", origin="lower",
        extent=(0.5, right, -0.5, top),
    )  # fmt: skip
    axes.set(xlabel="round", ylabel="device")
    axes.set_title(label, loc="left", fontsize=10)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(MAX_TICKS, integer=True))


def _add_colour_bar(figure: Figure, panels: list[Axes], colors: ScalarMappable) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = (round(level) for level in colors.get_clim())
    ticks = [n for n in range(low, high + 1) if high - low <= MAX_TICKS or n in TICK_LEVELS]
    bar = figure.colorbar(
        colors, ax=panels, label="level, bits per coordinate", aspect=40, fraction=0.03, pad=0.02,
        format="{x:g}",
    )  # fmt: skip
    bar.ax.yaxis.set_major_locator(FixedLocator(ticks))
    bar.ax.yaxis.set_minor_locator(NullLocator())
