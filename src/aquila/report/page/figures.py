"""The figures of a report: curves, devices, and the split of the data."""

from collections.abc import Callable, Sequence
from statistics import median

from aquila.report.page.amounts import MIB, column
from aquila.report.page.lines import Chart, charts, looks
from aquila.report.page.markup import Markup, tag
from aquila.report.page.method_table import caption, swatch
from aquila.report.page.pack import device_uplink
from aquila.report.page.runs import Run
from aquila.report.page.svg import bars_svg, chart_svg, map_svg

Counts = Sequence[Sequence[int]]
ClassCounts = Callable[[Run], Counts | None]
"""Tells how many samples of each class each device had, a row a device; None if unknown."""

MOST_SPLITS = 6
ZOOMS = {"in": ("+", "zoom in"), "out": ("−", "zoom out"), "reset": ("reset", "reset zoom")}
HINT = (
    "Drag to zoom in, double-click to see all again. The wheel zooms with Ctrl, or once a figure "
    "has the focus; keys there: + and −, arrows, 0."
)


def curves_section(runs: Sequence[Run]) -> Markup:
    """Return the legend, whose entries are switches, and a figure for everything recorded."""
    legend = [
        tag("button", swatch(look), run.label, type="button", aria_pressed="true", data_run=n,
            class_="own" if run.own else None)
        for n, (run, look) in enumerate(zip(runs, looks(runs), strict=True))
    ]  # fmt: skip
    axis = tag(
        "div",
        tag("button", "uplink bytes", type="button", data_axis="bytes", aria_pressed="true"),
        tag("button", "rounds", type="button", data_axis="round", aria_pressed="false"),
        role="group", aria_label="Horizontal axis of loss and accuracy", class_="switch needs-js",
    )  # fmt: skip
    shown = [
        tag("button", text, type="button", data_show=key, class_="plain")
        for text, key in (("all", "all"), ("AQUILA only", "own"), ("none", "none"))
    ]
    return tag(
        "section",
        tag("h2", "Curves"),
        tag("div", *legend, role="group", aria_label="Methods shown", class_="legend", id="legend"),
        tag("div", tag("div", *shown, role="group", aria_label="Show", class_="switch"), axis,
            class_="controls needs-js"),
        tag("p", HINT, class_="hint needs-js", id="hint"),
        tag("div", *(_figure(chart, runs) for chart in charts(runs)), class_="charts"),
        id="curves",
    )  # fmt: skip


def devices_section(runs: Sequence[Run], first: Run) -> Markup:
    """Return the map of levels of a run that can be chosen, and a table of all runs."""
    options = [
        tag("option", run.label, value=n, selected=run is first) for n, run in enumerate(runs)
    ]
    view = tag(
        "div",
        tag("div", tag("label", "run ", tag("select", *options, id="device-run")),
            class_="controls"),
        tag("div", class_="scale", id="map-scale"),
        tag("div",
            tag("canvas", id="level-map", role="img", tabindex=0, aria_describedby="map-cell"),
            class_="maps"),
        tag("p", id="map-note"),
        tag("output", "Point at a cell, or move with the arrow keys.", id="map-cell"),
        class_="needs-js",
    )  # fmt: skip
    without = tag("noscript", tag("p", "The map of levels needs JavaScript."))
    return tag("section", tag("h2", "Devices"), view, without, _device_table(runs), id="devices")


def split_section(runs: Sequence[Run], class_counts: ClassCounts) -> Markup:
    """Return a picture of each split of the data among the runs."""
    groups: dict[tuple[int, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(run.owners), []).append(run)
    known = [group for owners, group in groups.items() if owners][:MOST_SPLITS]
    pictures = [_split(group, len(groups) > 1, class_counts(group[0])) for group in known]
    if not pictures:
        pictures = [tag("p", "The folders hold no split.json, so the split is not known.")]
    return tag("section", tag("h2", "Split of the data"), *pictures, id="split")


def _figure(chart: Chart, runs: Sequence[Run]) -> Markup:
    unit = f", {chart.unit}" if chart.unit else ""
    buttons = [
        tag("button", text, type="button", data_zoom=key, aria_label=f"{name}: {chart.title}")
        for key, (text, name) in ZOOMS.items()
    ]
    return tag(
        "figure",
        tag("figcaption", tag("h3", chart.title, tag("small", unit)),
            tag("div", *buttons, class_="zoom needs-js")),
        tag("div", chart_svg(chart, runs), class_="plot"),
        tag("output", class_="readout needs-js"),
        data_chart=chart.column, class_="quality" if chart.by_bytes else None,
    )  # fmt: skip


def _device_table(runs: Sequence[Run]) -> Markup:
    sent = [device_uplink(run) / MIB for run in runs]
    columns = [column(float(f(s)) for s in sent) for f in (min, median, max)]
    rows = [
        tag("tr", tag("th", swatch(look), run.label, scope="row"),
            tag("td", str(run.devices), class_="number"),
            *(tag("td", texts[n], class_="number") for texts in columns))
        for n, (run, look) in enumerate(zip(runs, looks(runs), strict=True))
    ]  # fmt: skip
    heads = [tag("th", "method", scope="col")]
    heads += [
        tag("th", name, scope="col", class_="number")
        for name in ("devices", "least", "median", "most")
    ]
    table = tag(
        "table",
        caption("Uplink of a device over the whole run, MiB"),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *rows),
    )
    return tag(
        "details",
        tag("summary", "Uplink of a device, all runs"),
        tag("div", table, class_="wide", role="region", tabindex=0, aria_label="Uplink of devices"),
    )


def _split(group: Sequence[Run], named: bool, counts: Counts | None) -> Markup:
    sizes = group[0].samples
    told = (
        f"{sum(sizes):,} samples on {len(sizes)} devices: {min(sizes):,} to {max(sizes):,} each, "
        f"median {median(sizes):,.0f}."
    )
    if named:
        told += " Runs: " + ", ".join(run.label for run in group) + "."
    pictures = [tag("p", "samples a device", class_="axis")]
    pictures.append(bars_svg(sizes, f"Samples of each device. {told}"))
    if counts:
        label = f"Map of {len(counts)} devices by {len(counts[0])} classes"
        rows = f"classes 0 to {len(counts[0]) - 1}, top to bottom; stronger: more samples"
        pictures += [tag("p", rows, class_="axis"), map_svg(counts, label)]
    pictures.append(tag("p", f"devices 0 to {len(sizes) - 1}, left to right", class_="axis"))
    return tag("figure", *pictures, tag("figcaption", told), class_="split")
