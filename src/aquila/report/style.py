"""How figures look: colours that colour-blind readers can tell apart, AQUILA in front."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette without its yellow, which is lost on white paper
OWN = ("#D55E00", "#4A1F00", "#882255", "#C40233", "#C40233")
OTHERS = ("#0072B2", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000", "#999999")
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (6, 1, 1, 1)))
RESOLUTION = 200


def is_own(label: str) -> bool:
    """Say whether a run is of AQUILA or of a method that builds on it."""
    return label.startswith("aquila")


def line_styles(labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return a style for each run: strong warm lines for AQUILA, thin ones for the others."""
    own = others = 0
    styles: list[dict[str, Any]] = []
    for label in labels:
        if is_own(label):
            color, dash = OWN[own % len(OWN)], DASHES[own % len(DASHES)]
            width = max(1.8, 3 - 0.6 * own)  # what covers another leaves its edges to be seen
            styles.append({"color": color, "linestyle": dash, "linewidth": width, "zorder": 3})
            own += 1
        else:
            color, dash = OTHERS[others % len(OTHERS)], DASHES[others // len(OTHERS) % len(DASHES)]
            styles.append({"color": color, "linestyle": dash, "linewidth": 1.3, "zorder": 2})
            others += 1
    return styles


def ordered_styles(count: int) -> list[dict[str, Any]]:
    """Return styles for runs that differ in one number, from the smallest to the largest.

    Lines get thinner, so that one which covers another leaves its edges to be seen.
    """
    from matplotlib import colormaps

    shares = [n / max(1, count - 1) for n in range(count)]
    colors = colormaps["viridis"]
    return [{"color": colors(0.9 * share), "linewidth": 4.5 - 3.3 * share} for share in shares]


def tidy(axes: Axes) -> None:
    """Give axes a light grid, no box, and a legend beside them."""
    axes.grid(which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, handlelength=3)


def save(figure: Figure, path: Path) -> Path:
    """Write a figure to a file, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=RESOLUTION, bbox_inches="tight")
    return path
