"""Draws the figure of the front page: accuracy against real uplink bytes, for a few methods.

    python benchmarks/front_figure.py

Reads the runs of a folder and writes `front.svg` and `front-narrow.svg`. Curves are moving averages
of three evaluations. The labels have the bytes until the average reaches the target. The site shows
the narrow figure on phones, and gives both the colours of its light or dark scheme.
"""

import argparse
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from aquila.report.bytes_to_accuracy import WINDOW, accuracy_curve
from aquila.report.colours import assign_colours
from aquila.report.page.html import tag
from aquila.report.page.svg import Axis, coordinate
from aquila.report.runs import find_runs
from aquila.report.style import PALETTE
from aquila.report.units import format_byte_tick, format_bytes
from aquila.runtime.files import atomic_file

ROOT = Path(__file__).parents[1]
METHODS = ("aquila_dither", "aquila_topk", "aquila", "qsgd", "fedavg")
NAMES = {
    "aquila_dither": "AQUILA-Dither", "aquila_topk": "AQUILA-TopK", "aquila": "AQUILA",
    "qsgd": "QSGD", "fedavg": "FedAvg, dense",
}  # fmt: skip
FONT_SIZE = 14
BOLD_CHARACTER = 8.4
"""Mean width of a character of a label."""
LABEL_GAP = 10
LINE_HEIGHT = 18
LABEL_HEIGHT = 2 * LINE_HEIGHT + 8


@dataclass(frozen=True)
class Layout:
    """Size of the figure, and the number of rows of labels above the curves."""

    name: str
    width: int
    height: int
    rows: int
    left: int = 44
    right: int = 10
    bottom: int = 44

    @property
    def top(self):
        return self.rows * LABEL_HEIGHT + 26


LAYOUTS = (Layout("front.svg", 800, 400, rows=1), Layout("front-narrow.svg", 390, 420, rows=2))


@dataclass(frozen=True)
class Line:
    """A curve, its colour, and where it reaches the target."""

    label: str
    colour: str
    points: list[tuple[float, float]]
    cost: int

    @property
    def reached(self):
        """The accuracy at the first evaluation that reaches the target."""
        return dict(self.points)[self.cost]

    @property
    def width(self):
        return BOLD_CHARACTER * max(len(self.label), len(format_bytes(self.cost)))


def read_lines(folder, methods, target):
    """Return a line per method, in the order of the methods."""
    runs = {run.folder.name: run for run in find_runs(folder)}
    lines = []
    for method, colour in zip(methods, assign_colours(methods), strict=True):
        if method not in runs:
            raise SystemExit(f"{folder} has no run {method}, only {', '.join(sorted(runs))}")
        curve = accuracy_curve(runs[method].result.records)
        cost = curve.cost_to_reach(target)
        if cost is None:
            raise SystemExit(f"{method} does not reach {target:.0%} in {folder}")
        points = list(zip(curve.uplink_bytes[WINDOW - 1 :], curve.smoothed_accuracy, strict=True))
        lines.append(Line(NAMES.get(method, method), colour.colour, points, cost.uplink_bytes))
    return lines


def draw(lines, target, layout):
    """Return the figure as SVG."""
    bottom = layout.height - layout.bottom
    points = [point for line in lines for point in line.points]
    x = Axis([a for a, _ in points], layout.left + 6, layout.width - layout.right - 6, log=True)
    y = Axis([b for _, b in points], bottom, layout.top, log=False)
    curves = [
        tag("polyline", class_=f"line {line.colour}", points=" ".join(
            f"{coordinate(x.position(a))},{coordinate(y.position(b))}" for a, b in line.points))
        for line in reversed(lines)
    ]  # fmt: skip
    at = coordinate(y.position(target))
    goal = tag("path", class_="target", d=f"M{layout.left} {at}H{layout.width - layout.right}")
    title = tag("title", f"Test accuracy against uplink bytes of {len(lines)} methods")
    style = tag("style", css())
    return str(
        tag(
            "svg", title, style, *grid(x, y, layout), goal, *curves,
            *labels(lines, x, y, layout),
            tag("text", "test accuracy against uplink, real frames", class_="name",
                x=(layout.left + layout.width) // 2, y=layout.height - 6, text_anchor="middle"),
            xmlns="http://www.w3.org/2000/svg", class_="front-figure", role="img",
            viewBox=f"0 0 {layout.width} {layout.height}",
        )
    )  # fmt: skip


def grid(x, y, layout):
    """Return grid lines and the texts of ticks."""
    bottom = layout.height - layout.bottom
    elements = []
    for tick in y.ticks():
        at = coordinate(y.position(tick))
        elements.append(
            tag("path", class_="grid", d=f"M{layout.left} {at}H{layout.width - layout.right}")
        )
        text = f"{100 * tick:.3g} %"
        elements.append(tag("text", text, x=layout.left - 8, y=at, dy=5, text_anchor="end"))
    for tick in x.ticks():
        at, text = coordinate(x.position(tick)), format_byte_tick(tick)
        elements.append(tag("path", class_="grid", d=f"M{at} {layout.top}V{bottom}"))
        elements.append(tag("text", text, x=at, y=bottom + 18, text_anchor="middle"))
    return elements


def labels(lines, x, y, layout):
    """Return a dot per line where it reaches the target, and its label with a leader line."""
    elements, crossed = [], []
    for row in range(layout.rows):
        chosen = lines[row :: layout.rows]
        anchors = [x.position(line.cost) for line in chosen]
        places = spread(anchors, [line.width for line in chosen], crossed, layout)
        crossed += places
        for line, anchor, place in zip(chosen, anchors, places, strict=True):
            base = row * LABEL_HEIGHT + FONT_SIZE
            start, end = (row + 1) * LABEL_HEIGHT - 4, y.position(line.reached)
            leader = f"M{coordinate(place)} {start}L{coordinate(anchor)} {coordinate(end - 8)}"
            elements += [
                tag("path", class_=f"leader {line.colour}", d=leader),
                tag("circle", class_=f"dot {line.colour}", r=4.5, cx=coordinate(anchor),
                    cy=coordinate(end)),
                tag("text", line.label, class_=f"label {line.colour}", text_anchor="middle",
                    x=coordinate(place), y=base),
                tag("text", format_bytes(line.cost), class_=f"cost {line.colour}",
                    text_anchor="middle", x=coordinate(place), y=base + LINE_HEIGHT),
            ]  # fmt: skip
    return elements


def spread(anchors, widths, crossed, layout):
    """Return positions of labels near their anchors that overlap no label and no leader line.

    `crossed` has the positions of the leader lines of the rows above.
    """
    places = [*anchors, *crossed]
    widths = [*widths, *(0 for _ in crossed)]
    order = sorted(range(len(places)), key=lambda n: places[n])
    for _ in range(200):
        for pair in pairwise(order):
            gap = places[pair[1]] - places[pair[0]]
            overlap = sum(widths[n] for n in pair) / 2 + LABEL_GAP - gap
            movable = [n for n in pair if n < len(anchors)]
            for n in movable if overlap > 0 else ():
                places[n] += overlap / len(movable) * (-1 if n == pair[0] else 1)
        for n in range(len(anchors)):
            places[n] = min(max(places[n], widths[n] / 2), layout.width - widths[n] / 2)
    return places[: len(anchors)]


def css():
    """Return the style of the file on its own; docs/site.css replaces it on the site."""
    colours = "".join(f".{name}{{--c:{value}}}" for name, value in PALETTE.items())
    return (
        f"svg{{background:#fff;font:{FONT_SIZE}px system-ui,sans-serif;fill:#5c6168}}{colours}"
        ".grid{stroke:#e4e1d9}.target{stroke:#5c6168;stroke-dasharray:2 4}"
        ".line{fill:none;stroke:var(--c);stroke-width:2.6;stroke-linejoin:round}"
        ".leader{fill:none;stroke:var(--c)}.dot{fill:var(--c);stroke:#fff;stroke-width:1.5}"
        ".label{fill:var(--c);font-weight:600}.cost{fill:#1d1f22}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "results" / "table2" / "cifar10_iid")
    parser.add_argument("--methods", nargs="+", default=METHODS, help="folders of the runs")
    parser.add_argument("--target", type=float, default=0.78, help="test accuracy of the labels")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    chosen = parser.parse_args()
    lines = read_lines(chosen.runs, chosen.methods, chosen.target)
    for layout in LAYOUTS:
        with atomic_file(chosen.out / layout.name) as file:
            file.write(f"{draw(lines, chosen.target, layout)}\n".encode())
    for line in lines:
        ratio = max(each.cost for each in lines) / line.cost
        print(f"{line.label}: {format_bytes(line.cost)} to {chosen.target:.0%}, {ratio:,.0f} x")


if __name__ == "__main__":
    main()
