"""Static SVG figures, for print and for browsers without JavaScript."""

import math
from collections.abc import Iterable, Sequence

from aquila.report.page.charts import FRACTION, Chart, column_values, line_styles
from aquila.report.page.costs import UPLINK
from aquila.report.page.html import Html, tag
from aquila.report.page.runs import PageRun

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 8, 40
MAX_POINTS = 200
SHADES = 6
"""Number of shades that page.css defines."""

Point = tuple[float, float]


class Axis:
    """Maps numbers to positions, and chooses ticks."""

    def __init__(self, numbers: Sequence[float], start: float, end: float, log: bool) -> None:
        self.log = log
        self.low, self.high = min(numbers), max(numbers)
        if not log:
            margin = 0.04 * (self.high - self.low) or 0.5
            self.low, self.high = self.low - margin, self.high + margin
        elif self.low == self.high:
            self.low, self.high = self.low / 2, self.high * 2
        self.start, self.scale = (
            start,
            (end - start) / (self._transform(self.high) - self._transform(self.low)),
        )

    def position(self, number: float) -> float:
        """Return the position of a number."""
        return self.start + (self._transform(number) - self._transform(self.low)) * self.scale

    def ticks(self) -> list[float]:
        """Return about five round numbers within the range."""
        if not self.log:
            unit = 10.0 ** math.floor(math.log10((self.high - self.low) / 4))
            step = next(unit * m for m in (1, 2, 5, 10) if (self.high - self.low) / unit / m <= 6)
            first = math.ceil(self.low / step)
            return [n * step for n in range(first, math.floor(self.high / step) + 1)]
        low, high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        multipliers = (1, 2, 5) if high - low <= 3 else (1,)
        every = max(1, (high - low) // 6)
        ticks = [
            multiplier * 10.0**n for n in range(low, high + 1, every) for multiplier in multipliers
        ]
        return [tick for tick in ticks if self.low <= tick <= self.high]

    def _transform(self, number: float) -> float:
        return math.log10(number) if self.log else number


def chart_svg(chart: Chart, runs: Sequence[PageRun]) -> Html:
    """Draw a chart of all runs."""
    lines = [_points(run, chart) for run in runs]
    all_points = [point for line in lines for point in line]
    if not all_points:
        return tag("p", "No data.")
    x = Axis([p[0] for p in all_points], LEFT, WIDTH - RIGHT, log=chart.by_cost)
    y = Axis([p[1] for p in all_points], HEIGHT - BOTTOM, TOP, log=chart.log)
    order = sorted(range(len(runs)), key=lambda n: runs[n].is_aquila)  # AQUILA on top
    styles = line_styles(runs)
    elements = [
        tag("polyline", class_=styles[n].classes, points=_path(lines[n], x, y)) for n in order
    ]
    name = "uplink, MiB" if chart.by_cost else "round"
    return tag(
        "svg", *_grid(x, y, percent=chart.unit == FRACTION), *elements,
        tag("text", name, x=WIDTH - RIGHT, y=HEIGHT - 6, text_anchor="end", class_="name"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", class_="static",
        aria_label=f"{chart.title} against {name}",
    )  # fmt: skip


def bars_svg(sizes: Sequence[int], label: str) -> Html:
    """Draw one bar per device."""
    largest = max(sizes) or 1
    bars = "".join(
        f"M{n + 0.05:g} 100v-{_coord(100 * size / largest)}h.9v{_coord(100 * size / largest)}z"
        for n, size in enumerate(sizes)
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


def _points(run: PageRun, chart: Chart) -> list[Point]:
    xs: Iterable[float | None] = UPLINK.values(run) if chart.by_cost else range(len(run.records))
    points = [
        (x, y)
        for x, y in zip(xs, column_values(run, chart.column), strict=True)
        if x is not None and y is not None and math.isfinite(y)
        if (x > 0 or not chart.by_cost) and (y > 0 or not chart.log)
    ]
    step = -(-len(points) // MAX_POINTS) or 1
    return points[::step]


def _path(line: Sequence[Point], x: Axis, y: Axis) -> str:
    return " ".join(f"{_coord(x.position(a))},{_coord(y.position(b))}" for a, b in line)


def _grid(x: Axis, y: Axis, percent: bool) -> list[Html]:
    elements = []
    for tick in y.ticks():
        at = _coord(y.position(tick))
        elements.append(tag("path", d=f"M{LEFT} {at}H{WIDTH - RIGHT}", class_="grid"))
        text = f"{100 * tick:.4g}%" if percent else f"{tick:.4g}"
        elements.append(tag("text", text, x=LEFT - 6, y=at, dy=4, text_anchor="end"))
    for tick in x.ticks():
        at = _coord(x.position(tick))
        elements.append(tag("path", d=f"M{at} {TOP}V{HEIGHT - BOTTOM}", class_="grid"))
        name = f"{tick:.4g}"
        elements.append(tag("text", name, x=at, y=HEIGHT - BOTTOM + 15, text_anchor="middle"))
    return elements


def _coord(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
