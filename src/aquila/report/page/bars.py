"""What each run needed to the same quality: bars on a logarithmic axis."""

import math
from collections.abc import Sequence

from aquila.report.page.charts import line_styles
from aquila.report.page.comparison import Comparison
from aquila.report.page.costs import UPLINK, PageCost, available_costs
from aquila.report.page.format import format_bytes, format_ratio
from aquila.report.page.html import Html, tag, void_tag
from aquila.report.page.measures import Measure, available_measures
from aquila.report.page.method_table import run_name
from aquila.report.page.runs import PageRun

INSIDE = 70.0
"""Percent of the width from which on the factor is written inside the bar."""


def quality_section(runs: Sequence[PageRun], comparison: Comparison, featured: set[str]) -> Html:
    """Return what each run needed to the same quality, with bars and controls for the target."""
    measure, target = comparison.measure, comparison.target
    needed = [UPLINK.to_target(run, measure, target) for run in runs]
    known = [count for count in needed if count]
    low, high = bar_range(known)
    compared = UPLINK.to_target(comparison.reference, measure, target)
    rows = [
        tag(
            "tr",
            run_name(run, style),
            tag("td", _bar(count, low, high, compared), class_=f"bar-cell {style.colour_classes}"),
            tag("td", UPLINK.format(count) if count else "not reached", class_="number needed"),
            tag("td", _rounds(run, measure, target), class_="number rounds"),
            data_run=number,
            data_minor=run.label not in featured,
        )
        for number, (run, style, count) in enumerate(
            zip(runs, line_styles(runs), needed, strict=True)
        )
    ]
    order = sorted(range(len(runs)), key=lambda n: math.inf if (c := needed[n]) is None else c)
    table = tag(
        "table",
        _caption(comparison),
        tag("thead", tag("tr", tag("th", "method", scope="col"), tag("td", _axis(low, high)),
            tag("th", "needed", scope="col", class_="number"),
            tag("th", "rounds", scope="col", class_="number"))),
        tag("tbody", *(rows[number] for number in order)),
        class_="cost-to-quality",
    )  # fmt: skip
    return tag(
        "section",
        tag("h2", "Cost of the same quality"),
        _controls(available_measures(runs), comparison, available_costs(runs)),
        table,
        id="quality",
    )


def _caption(comparison: Comparison) -> Html:
    measure = comparison.measure
    goal = f"{measure.title} {measure.format_value(comparison.target)}"
    factor = f"31 × means 31 times less than {comparison.reference.label}."
    return tag(
        "caption",
        tag("span", "Uplink", id="cost-name"),
        " until each run first reached ",
        tag("span", goal, id="goal"),
        ", on a logarithmic scale. ",
        tag("span", factor, id="factor-note"),
    )


def bar_range(known: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the logarithmic axis: a power of ten, and the largest number."""
    if not known:
        return 1.0, 10.0
    low = 10.0 ** math.floor(math.log10(min(known) / 2))
    return low, max(max(known), 10 * low)


def _rounds(run: PageRun, measure: Measure, target: float) -> str:
    values = enumerate(measure.values(run), start=1)
    reached = (n for n, v in values if v is not None and measure.reached(v, target))
    return f"{next(reached, '–')}"


def _position(value: float, low: float, high: float) -> float:
    return 100 * math.log(value / low) / math.log(high / low)


def _ticks(low: float, high: float) -> list[float]:
    decades = round(math.log10(low)), math.floor(math.log10(high))
    every = -(-(decades[1] - decades[0] + 1) // 6)
    return [10.0**n for n in range(decades[0], decades[1] + 1, every)]


def _axis(low: float, high: float) -> Html:
    ticks = [
        tag("text", format_bytes(t), x=f"{_position(t, low, high):.2f}%", y=12,
            text_anchor="middle" if t > low else "start")
        for t in _ticks(low, high)
        if _position(t, low, high) < 93
    ]  # fmt: skip
    return tag("svg", *ticks, class_="bar-axis", id="bar-axis", aria_hidden="true")


def _bar(count: float | None, low: float, high: float, compared: float | None) -> Html:
    lines = [
        tag("line", x1=(x := f"{_position(t, low, high):.2f}%"), x2=x, y1=0, y2="100%",
            class_="grid")
        for t in _ticks(low, high)
    ]  # fmt: skip
    width = _position(count, low, high) if count else 0.0
    parts = [*lines, tag("rect", width=f"{width:.2f}%", y=3, height=18, rx=2)]
    factor = f"{format_ratio(compared / count)} ×" if count and compared else ""
    inside = width > INSIDE
    parts.append(
        tag("text", factor, x=f"{width:.2f}%", dx=-7 if inside else 7, y=16,
            text_anchor="end" if inside else "start", class_="inside" if inside else "outside")
    )  # fmt: skip
    return tag("svg", *parts, aria_hidden="true")


def _controls(known: Sequence[Measure], comparison: Comparison, costs: Sequence[PageCost]) -> Html:
    options = [tag("option", m.title, value=m.key, selected=m == comparison.measure) for m in known]
    bars = [tag("option", cost.cost.title, value=cost.key) for cost in costs]
    return tag(
        "div",
        tag("label", "cost ", tag("select", *bars, id="cost")),
        tag("label", "quality ", tag("select", *options, id="measure")),
        tag("label", "target ", void_tag("input", type="range", id="target", min=0, max=200)),
        class_="controls needs-js",
    )
