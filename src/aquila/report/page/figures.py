"""The sections of a report with figures: curves, devices and the data split."""

from collections.abc import Callable, Sequence
from statistics import median

from aquila.report.page.charts import BYTES, FRACTION, Chart, charts_for, line_styles
from aquila.report.page.costs import available_costs
from aquila.report.page.format import format_bytes
from aquila.report.page.html import Html, tag, void_tag
from aquila.report.page.method_table import caption, scrollable, swatch
from aquila.report.page.packed_data import device_uplink
from aquila.report.page.runs import PageRun
from aquila.report.page.split_svg import bars_svg, heat_map_svg
from aquila.report.page.svg import chart_svg

ClassCounts = Sequence[Sequence[int]]
ReadClassCounts = Callable[[PageRun], ClassCounts | None]
"""Returns samples per class, one row per device; None if unknown."""

MAX_SPLITS = 6
ZOOM_BUTTONS = {"in": ("+", "zoom in"), "out": ("−", "zoom out"), "reset": ("reset", "reset zoom")}
SAVE_BUTTONS = {"svg": ("SVG", "save as SVG"), "csv": ("CSV", "save as CSV")}
SMOOTHING = (1, 3, 5, 11, 21)
"""Numbers of evaluations that a smoothed curve averages."""
MAP_HINT = "The level of each upload, by device and round. Bars: total uplink per device."
ZOOM_HINT = (
    "Drag to zoom in, double-click to reset. Ctrl + mouse wheel zooms too. In a focused figure, "
    "use the wheel, + and −, the arrow keys, or 0 to reset."
)


def curves_section(runs: Sequence[PageRun], featured: set[str]) -> Html:
    """Return the legend, whose entries show and hide runs, and all figures."""
    legend = [
        tag("button", swatch(style), run.label, type="button", aria_pressed="true", data_run=n,
            class_="aquila" if run.is_aquila else None, data_minor=run.label not in featured)
        for n, (run, style) in enumerate(zip(runs, line_styles(runs), strict=True))
    ]  # fmt: skip
    shown = [
        tag("button", text, type="button", data_show=key, class_="plain")
        for text, key in (("all", "all"), ("AQUILA only", "aquila"), ("none", "none"))
    ]
    figures = [chart_figure(chart, runs, featured) for chart in charts_for(runs)]
    return tag(
        "section",
        tag("h2", "Curves"),
        tag("div", *legend, role="group", aria_label="Methods shown", class_="legend", id="legend"),
        tag("div", tag("div", *shown, role="group", aria_label="Show", class_="switch"),
            *_curve_controls(runs), class_="controls needs-js"),
        tag("p", ZOOM_HINT, class_="hint needs-js", id="hint"),
        tag("div", *figures, class_="charts"),
        id="curves",
    )  # fmt: skip


def _curve_controls(runs: Sequence[PageRun]) -> list[Html]:
    """Return the controls of the axes and of smoothing."""
    axes = {**{cost.key: cost.cost.title for cost in available_costs(runs)}, "round": "rounds"}
    buttons = [
        tag("button", text, type="button", data_axis=key, aria_pressed=str(n == 0).lower())
        for n, (key, text) in enumerate(axes.items())
    ]
    windows = [
        tag("option", "none" if window == 1 else f"{window} evaluations", value=window)
        for window in SMOOTHING
    ]
    controls = [
        tag("div", *buttons, role="group", aria_label="Horizontal axis of quality",
            class_="switch"),
        tag("label", "smoothing ", tag("select", *windows, id="smoothing")),
    ]  # fmt: skip
    if any(chart.unit == FRACTION for chart in charts_for(runs)):
        box = void_tag("input", type="checkbox", id="error-axis")
        controls.append(tag("label", box, " 1 − accuracy, log axis"))
    return controls


def devices_section(runs: Sequence[PageRun], first: PageRun) -> Html:
    """Return the level map of a selectable run, and a table of all runs."""
    options = [
        tag("option", run.label, value=n, selected=run is first) for n, run in enumerate(runs)
    ]
    view = tag(
        "div",
        tag("p", MAP_HINT, class_="hint"),
        tag("div", tag("label", "run ", tag("select", *options, id="device-run")),
            class_="controls"),
        tag("div", class_="scale", id="map-scale"),
        tag("div",
            tag("canvas", id="level-map", role="img", tabindex=0, aria_describedby="map-cell"),
            class_="maps"),
        tag("p", id="map-note"),
        tag("output", "Point at a cell, or use the arrow keys.", id="map-cell"),
        class_="needs-js",
    )  # fmt: skip
    no_script = tag("noscript", tag("p", "The level map needs JavaScript."))
    return tag("section", tag("h2", "Devices"), view, no_script, _device_table(runs), id="devices")


def split_section(runs: Sequence[PageRun], class_counts: ReadClassCounts) -> Html:
    """Return a figure for each distinct data split of the runs."""
    groups: dict[tuple[int, ...], list[PageRun]] = {}
    for run in runs:
        groups.setdefault(tuple(run.device_of_sample), []).append(run)
    known = [group for owners, group in groups.items() if owners][:MAX_SPLITS]
    pictures = [
        _split_figure(group, len(groups) > 1, class_counts(group[0].repetitions[0]))
        for group in known
    ]
    if not pictures:
        pictures = [tag("p", "The run folders contain no split.json, so the split is unknown.")]
    return tag("section", tag("h2", "Data split"), *pictures, id="split")


def chart_figure(
    chart: Chart, runs: Sequence[PageRun], featured: set[str], hero: bool = False
) -> Html:
    """Return a figure with its buttons; `hero` is the one at the top of the page."""
    unit = f", {chart.unit}" if chart.unit not in ("", FRACTION, BYTES) else ""
    buttons = [
        tag("button", text, type="button", aria_label=f"{name}: {chart.title}", title=name,
            **{f"data_{kind}": key})
        for kind, texts in (("zoom", ZOOM_BUTTONS), ("save", SAVE_BUTTONS))
        for key, (text, name) in texts.items()
    ]  # fmt: skip
    kind = "hero" if hero else "quality" if chart.by_cost else None
    return tag(
        "figure",
        tag("figcaption", tag("h3", chart.title, tag("small", unit, class_="unit")),
            tag("div", *buttons, class_="zoom needs-js")),
        tag("div", chart_svg(chart, runs, featured), class_="plot"),
        tag("output", class_="readout needs-js"),
        data_chart=chart.column, class_=kind,
    )  # fmt: skip


def _device_table(runs: Sequence[PageRun]) -> Html:
    sent = [device_uplink(run) for run in runs]
    columns = [[format_bytes(float(f(s))) for s in sent] for f in (min, median, max)]
    rows = [
        tag("tr", tag("th", swatch(style), run.label, scope="row"),
            tag("td", str(run.devices), class_="number"),
            *(tag("td", texts[n], class_="number") for texts in columns))
        for n, (run, style) in enumerate(zip(runs, line_styles(runs), strict=True))
    ]  # fmt: skip
    heads = [tag("th", "method", scope="col")]
    heads += [
        tag("th", name, scope="col", class_="number")
        for name in ("devices", "min", "median", "max")
    ]
    table = tag(
        "table",
        caption("Uplink per device over the whole run"),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *rows),
    )
    return tag(
        "details",
        tag("summary", "Uplink per device, all runs"),
        scrollable(table, "Uplink per device"),
    )


def _split_figure(group: Sequence[PageRun], name_runs: bool, counts: ClassCounts | None) -> Html:
    sizes = group[0].samples_per_device
    description = (
        f"{sum(sizes):,} samples on {len(sizes)} devices: {min(sizes):,} to {max(sizes):,} per "
        f"device, median {median(sizes):,.0f}."
    )
    if group[0].members:
        description += f" Split of seed {group[0].members[0].facts['seed']}."
    if name_runs:
        description += " Runs: " + ", ".join(run.label for run in group) + "."
    pictures = [tag("p", "samples per device", class_="axis")]
    pictures.append(bars_svg(sizes, f"Samples per device. {description}"))
    if counts:
        label = f"Map of {len(counts)} devices by {len(counts[0])} classes"
        rows = f"classes 0 to {len(counts[0]) - 1}, top to bottom; stronger colour: more samples"
        pictures += [tag("p", rows, class_="axis"), heat_map_svg(counts, label)]
    pictures.append(tag("p", f"devices 0 to {len(sizes) - 1}, left to right", class_="axis"))
    return tag("figure", *pictures, tag("figcaption", description), class_="split")
