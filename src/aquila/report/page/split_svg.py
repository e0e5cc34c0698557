"""Static SVG figures of a data split: samples by device, and by device and class."""

import math
from collections.abc import Sequence

from aquila.report.page.html import Html, tag
from aquila.report.page.svg import coordinate

SHADES = 6
"""Number of shades that page.css defines."""


def bars_svg(sizes: Sequence[int], label: str) -> Html:
    """Draw one bar per device."""
    largest = max(sizes) or 1
    bars = "".join(
        f"M{n + 0.05:g} 100v-{height}h.9v{height}z"
        for n, height in enumerate(coordinate(100 * size / largest) for size in sizes)
    )
    return _stretched(len(sizes), 100, tag("path", d=bars, class_="bar"), label)


def heat_map_svg(counts: Sequence[Sequence[int]], label: str) -> Html:
    """Draw a map of devices by classes; a stronger colour means more samples."""
    largest = max(max(row) for row in counts) or 1
    shades: list[list[str]] = [[] for _ in range(SHADES)]
    for device, row in enumerate(counts):
        for klass, count in enumerate(row):
            if count:  # square root: a few samples must not look like none
                shade = min(int(math.sqrt(count / largest) * SHADES), SHADES - 1)
                shades[shade].append(f"M{device + 0.05:g} {klass + 0.05:g}h.9v.9h-.9z")
    paths = (tag("path", d="".join(d), class_=f"shade{n}") for n, d in enumerate(shades) if d)
    ground = tag("rect", width=len(counts), height=len(counts[0]), class_="background")
    return _stretched(len(counts), len(counts[0]), Html(ground + "".join(paths)), label)


def _stretched(width: int, height: int, content: Html, label: str) -> Html:
    return tag(
        "svg", content, viewBox=f"0 0 {width} {height}", preserveAspectRatio="none",
        role="img", aria_label=label, class_="stretched",
    )  # fmt: skip
