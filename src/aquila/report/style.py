"""Style of figures: a palette for colour-blind readers, with AQUILA in front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aquila.report.colours import assign_colours, is_aquila
from aquila.runtime.files import atomic_file, make_folder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# chosen so that readers with a colour vision deficiency can tell any two apart; as in page.css
PALETTE = {
    "aquila": "#C8500A", "red": "#A30119", "plum": "#6A185C",
    "blue": "#0F329E", "green": "#037C6C", "ochre": "#C48241", "sky": "#2883F6",
    "pink": "#B440B7", "ink": "#1D1F22", "grey": "#8194A0",
}  # fmt: skip
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (6, 1, 1, 1)))
FADES = (1.0, 0.6, 0.35)
RESOLUTION = 200
LEGEND_ROWS = 18
"""Runs per column of a legend."""


def line_styles(labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return a style for each run: thick warm lines for AQUILA, thin lines for other methods.

    Runs of one colour differ in dashes, then in opacity. Every second run of a method is
    darker, so that it is visible on top of the run before it.
    """
    rank = 0
    styles: list[dict[str, Any]] = []
    for label, assigned in zip(labels, assign_colours(labels), strict=True):
        width, order = 1.3, 2
        if is_aquila(label):
            width, order = max(1.8, 3 - 0.6 * rank), 3  # the edges of a covered line stay visible
            rank += 1
        fade, dash = divmod(assigned.colour_index, len(DASHES))
        color = (
            PALETTE[assigned.colour]
            if assigned.method_index % 2 == 0
            else _darken(PALETTE[assigned.colour])
        )
        styles.append(
            {"color": color, "linestyle": DASHES[dash], "alpha": FADES[fade % len(FADES)],
             "linewidth": width, "zorder": order}
        )  # fmt: skip
    return styles


def _darken(color: str) -> str:
    return "#" + "".join(f"{int(color[n : n + 2], 16) * 3 // 5:02X}" for n in (1, 3, 5))


def sweep_styles(count: int) -> list[dict[str, Any]]:
    """Return styles for runs that differ in one number, from the smallest to the largest.

    Lines get thinner, so that the edges of a covered line stay visible.
    """
    from matplotlib import colormaps

    positions = [n / max(1, count - 1) for n in range(count)]
    colors = colormaps["viridis"]
    return [
        {"color": colors(0.9 * position), "linewidth": 4.5 - 3.3 * position}
        for position in positions
    ]


def style_axes(axes: Axes) -> None:
    """Give axes a light grid, no box, and a legend on the right."""
    axes.grid(which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    columns = math.ceil(len(axes.get_legend_handles_labels()[1]) / LEGEND_ROWS)
    axes.legend(
        loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, handlelength=3, ncols=columns
    )


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure to a file, and return the path."""
    make_folder(path.parent)
    with atomic_file(path) as file:
        figure.savefig(file, dpi=RESOLUTION, bbox_inches="tight", format=path.suffix[1:] or None)
    return path
