"""Figure of a data split: samples per device and class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aquila.report.new_figure import new_figure
from aquila.runtime.files import make_folder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELL_INCHES = 0.42
NUMBERED_CELLS = 200
"""With more cells than this, numbers in the cells would be unreadable."""


def plot_split(counts: Sequence[Sequence[int]], path: Path, title: str = "") -> Path:
    """Draw samples per device above a map of devices by classes, and return the path.

    `counts` has one row per device: the number of samples of each class.
    """
    devices, classes = len(counts), len(counts[0])
    figure = new_figure(
        width=min(12.0, max(6.0, 1.5 + devices * CELL_INCHES)),
        height=min(9.0, max(4.5, 2.5 + classes * CELL_INCHES)),
    )
    top, bottom = figure.subplots(
        2, 1, sharex=True, height_ratios=[1, max(2.0, min(5.0, classes / 4))]
    )
    _draw_sizes(top, [sum(row) for row in counts])
    # square root: a few samples must not look like none
    image = bottom.imshow(
        _transpose(counts), cmap="Blues", norm=_square_root_norm(), aspect="auto", origin="lower"
    )
    bottom.set(xlabel="device", ylabel="class")
    _set_ticks(bottom.xaxis, devices)
    _set_ticks(bottom.yaxis, classes)
    if devices * classes <= NUMBERED_CELLS:
        _write_counts(bottom, counts)
    else:
        figure.colorbar(image, ax=[top, bottom], label="samples", fraction=0.04, pad=0.02)
    figure.suptitle(title, x=0.02, ha="left")
    make_folder(path.parent)
    figure.savefig(path, dpi=150)
    return path


def _square_root_norm() -> Any:
    from matplotlib.colors import PowerNorm

    return PowerNorm(0.5, vmin=0)


def _draw_sizes(axes: Axes, sizes: Sequence[int]) -> None:
    axes.bar(range(len(sizes)), sizes, color="C0", width=0.8)
    axes.axhline(sum(sizes) / len(sizes), color="0.4", linewidth=1, linestyle="--")
    axes.set(ylabel="samples", ylim=(0, max(sizes) * 1.1))
    axes.tick_params(bottom=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _transpose(counts: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    return list(zip(*counts, strict=True))


def _set_ticks(axis: Any, count: int) -> None:
    """Put a tick at every number, or at round numbers if there are many."""
    step = next(s for s in (1, 5, 10, 20, 50, 100, count) if count / s <= 20)
    axis.set_ticks(range(0, count, step))


def _write_counts(axes: Axes, counts: Sequence[Sequence[int]]) -> None:
    largest = max(max(row) for row in counts)
    for device, row in enumerate(counts):
        for label, count in enumerate(row):
            if count:
                color = "white" if count > 0.4 * largest else "0.2"
                axes.text(
                    device, label, str(count), ha="center", va="center", fontsize=7, color=color
                )
