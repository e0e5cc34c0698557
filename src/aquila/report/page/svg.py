"""Static SVG figures, for print and for browsers without JavaScript."""

import math
from collections.abc import Iterable, Sequence

from aquila.report.page.charts import (
    BYTES,
    FRACTION,
    Chart,
    LineStyle,
    column_range,
    column_values,
    line_styles,
)
from aquila.report.page.costs import UPLINK
from aquila.report.page.html import Html, tag
from aquila.report.page.runs import PageRun
from aquila.report.units import SPACE, format_byte_tick

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 8, 40
MAX_POINTS = 200
CHARACTER = 6.6
"""Mean width of a character of a label."""

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
        multipliers = (1, 2, 5) if high - low <= 2 else (1,)
        every = max(1, (high - low) // 6)
        ticks = [
            multiplier * 10.0**n for n in range(low, high + 1, every) for multiplier in multipliers
        ]
        return [tick for tick in ticks if self.low <= tick <= self.high]

    def _transform(self, number: float) -> float:
        return math.log10(number) if self.log else number


def chart_svg(chart: Chart, runs: Sequence[PageRun], featured: set[str]) -> Html:
    """Draw a chart of all runs; the featured ones have labels, the others are faint."""
    lines = [_points(run, chart) for run in runs]
    all_points = [point for line in lines for point in line]
    if not all_points:
        return tag("p", "No data.")
    x = Axis([p[0] for p in all_points], LEFT, WIDTH - RIGHT, log=chart.by_cost)
    y = Axis([p[1] for p in all_points], HEIGHT - BOTTOM, TOP, log=chart.log)
    order = sorted(range(len(runs)), key=lambda n: (runs[n].label in featured, runs[n].is_aquila))
    styles = line_styles(runs)
    bands = [
        tag(
            "polygon",
            class_=f"band {styles[n].colour_classes}",
            points=_path(_band(runs[n], chart), x, y),
        )
        for n in order
        if runs[n].members
    ]
    elements = [
        tag("polyline", class_=_classes(styles[n], runs[n].label in featured),
            points=_path(lines[n], x, y))
        for n in order
    ]  # fmt: skip
    placed = [[(x.position(a), y.position(b)) for a, b in line] for line in lines]
    labels = place_labels(
        [(runs[n].label, placed[n]) for n in order[::-1] if runs[n].label in featured]
    )
    name = "uplink" if chart.by_cost else "round"
    return tag(
        "svg", *_grid(chart, x, y), *bands, *elements, *labels,
        tag("text", name, x=WIDTH - RIGHT, y=HEIGHT - 6, text_anchor="end", class_="name"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", class_="static",
        aria_label=f"{chart.title} against {name}",
    )  # fmt: skip


def place_labels(lines: Sequence[tuple[str, Sequence[Point]]]) -> list[Html]:
    """Return the names of lines next to their ends, those that fit without overlap."""
    points = [point for _, line in lines for point in line]
    boxes: list[tuple[float, float, float, float]] = []
    labels = []
    for name, line in lines:
        if not line:
            continue
        width, (end_x, end_y) = CHARACTER * len(name), line[-1]
        places = [
            (left, end_y + down, left + width, end_y + down + 14)
            for left in (end_x + 6, end_x - width / 2, end_x - width - 6)
            for down in (-7, -20, 8, -34, 22)
        ]
        free = [box for box in places if _fits(box) and not any(_overlap(box, b) for b in boxes)]
        if free:
            boxes.append(min(free, key=lambda box: sum(_inside(p, box) for p in points)))
            left, top, *_ = boxes[-1]
            labels.append(
                tag("text", name, x=coordinate(left), y=coordinate(top + 11), class_="direct")
            )
    return labels


def _fits(box: tuple[float, float, float, float]) -> bool:
    left, top, right, bottom = box
    return left >= LEFT and right <= WIDTH and top >= 0 and bottom <= HEIGHT - BOTTOM


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _inside(point: Point, box: tuple[float, ...]) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def _classes(style: LineStyle, is_featured: bool) -> str:
    return style.classes if is_featured else f"{style.classes} minor"


def _points(run: PageRun, chart: Chart) -> list[Point]:
    return _against_cost(run, chart, column_values(run, chart.column))


def _band(run: PageRun, chart: Chart) -> list[Point]:
    """Return the outline of the range over the seeds."""
    low, high = column_range(run, chart.column)
    return _against_cost(run, chart, low) + _against_cost(run, chart, high)[::-1]


def _against_cost(run: PageRun, chart: Chart, values: Sequence[float | None]) -> list[Point]:
    xs: Iterable[float | None] = UPLINK.values(run) if chart.by_cost else range(len(run.records))
    points = [
        (x, y)
        for x, y in zip(xs, values, strict=True)
        if x is not None and y is not None and math.isfinite(y)
        if (x > 0 or not chart.by_cost) and (y > 0 or not chart.log)
    ]
    step = -(-len(points) // MAX_POINTS) or 1
    return points[::step]


def _path(line: Sequence[Point], x: Axis, y: Axis) -> str:
    return " ".join(f"{coordinate(x.position(a))},{coordinate(y.position(b))}" for a, b in line)


def _grid(chart: Chart, x: Axis, y: Axis) -> list[Html]:
    elements = []
    for tick in y.ticks():
        at = coordinate(y.position(tick))
        elements.append(tag("path", d=f"M{LEFT} {at}H{WIDTH - RIGHT}", class_="grid"))
        text = _tick_text(tick, chart.unit)
        elements.append(tag("text", text, x=LEFT - 6, y=at, dy=4, text_anchor="end"))
    for tick in x.ticks():
        at = coordinate(x.position(tick))
        elements.append(tag("path", d=f"M{at} {TOP}V{HEIGHT - BOTTOM}", class_="grid"))
        name = _tick_text(tick, BYTES if chart.by_cost else "")
        elements.append(tag("text", name, x=at, y=HEIGHT - BOTTOM + 15, text_anchor="middle"))
    return elements


def _tick_text(tick: float, unit: str) -> str:
    if unit == BYTES:
        return format_byte_tick(tick, SPACE)
    return f"{100 * tick:.4g}%" if unit == FRACTION else f"{tick:.4g}"


def coordinate(number: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{number:.1f}".removesuffix(".0")
