"""The table of methods. The script of the page sorts it and recomputes the savings."""

from collections.abc import Sequence
from dataclasses import dataclass

from aquila.report.page.charts import LineStyle, line_styles
from aquila.report.page.comparison import LOSS, available_measures
from aquila.report.page.costs import available_costs
from aquila.report.page.format import format_column, format_ratio
from aquila.report.page.html import Html, tag
from aquila.report.page.runs import PageRun
from aquila.report.units import MIB


@dataclass(frozen=True)
class Column:
    """A column: heading, tooltip, numbers and their text."""

    heading: str
    hint: str
    numbers: Sequence[float | None]
    texts: Sequence[str]


def methods_section(runs: Sequence[PageRun], baseline: PageRun) -> Html:
    """Return the table with one row per run: quality, traffic and saving."""
    traffic = _traffic_columns(runs, baseline)
    columns = [*_quality_columns(runs), *traffic[:2], *_simulated_columns(runs), *traffic[2:]]
    heads = [tag("th", "method", scope="col", data_kind="text")]
    heads += [tag("th", c.heading, scope="col", title=c.hint, class_="number") for c in columns]
    rows = [
        _row(run, style, n, columns)
        for n, (run, style) in enumerate(zip(runs, line_styles(runs), strict=True))
    ]
    options = [
        tag("option", run.label, value=n, selected=run is baseline) for n, run in enumerate(runs)
    ]
    return tag(
        "section",
        tag("h2", "Methods"),
        tag("div", tag("label", "saving compared with ", tag("select", *options, id="baseline")),
            class_="controls needs-js"),
        tag("div",
            tag("table",
                caption("One row per run, after its last round. Saving: total uplink of ",
                        tag("span", baseline.label, id="baseline-name"),
                        " ÷ total uplink of the run."),
                tag("thead", tag("tr", *heads)), tag("tbody", *rows), id="methods-table"),
            class_="scrollable", role="region", tabindex=0, aria_label="Table of methods"),
        id="methods",
    )  # fmt: skip


def caption(*text: str) -> Html:
    """Return a caption that stays visible when its table scrolls horizontally."""
    return tag("caption", tag("span", *text, class_="sticky"))


def swatch(style: LineStyle) -> Html:
    """Return a sample of a run's line."""
    line = tag("path", d="M1 4H23", class_=style.classes)
    return tag("svg", line, class_="swatch", viewBox="0 0 24 8", aria_hidden="true")


def _row(run: PageRun, style: LineStyle, number: int, columns: Sequence[Column]) -> Html:
    name = [swatch(style), run.label]
    if len(run.records) < run.planned_rounds:
        stopped = f" stopped after {len(run.records)} of {run.planned_rounds} rounds"
        name.append(tag("small", stopped))
    cells = [
        tag("td", c.texts[number], class_="number", data_value=_sort_value(c.numbers[number]),
            data_saving=c.heading == "saving")
        for c in columns
    ]  # fmt: skip
    return tag(
        "tr",
        tag("th", *name, scope="row", data_value=run.label),
        *cells,
        class_="aquila" if run.is_aquila else None,
        data_run=number,
    )


def _quality_columns(runs: Sequence[PageRun]) -> list[Column]:
    columns = []
    for measure in available_measures(runs):
        numbers = [measure.last(run) for run in runs]
        hint = f"latest {measure.title}"
        heading = "loss" if measure is LOSS else measure.title
        columns.append(Column(heading, hint, numbers, [measure.format_value(n) for n in numbers]))
    return columns


def _traffic_columns(runs: Sequence[PageRun], baseline: PageRun) -> list[Column]:
    results = [run.result for run in runs]
    down = [sum(r.downlink_bytes for r in run.records) for run in runs]
    sizes = [
        ("uplink MiB", "real frames sent by devices", [r.uplink_bytes / MIB for r in results]),
        ("downlink MiB", "real frames sent to devices", [count / MIB for count in down]),
        ("paper MiB", "b·d: bits per coordinate × coordinates, as papers count the uplink",
         [r.paper_bits / 8 / MIB for r in results]),
    ]  # fmt: skip
    counts = [
        ("uploads", "replies with a vector", [r.uploads for r in results]),
        ("skips", "replies without a vector", [r.skips for r in results]),
    ]
    levels = [r.mean_level for r in results]
    saving = [baseline.result.uplink_bytes / max(r.uplink_bytes, 1) for r in results]
    uplink, *others = [Column(heading, hint, n, format_column(n)) for heading, hint, n in sizes]
    return [
        uplink,
        Column("saving", "uplink of the baseline ÷ this uplink", saving,
               [f"{format_ratio(ratio)} ×" for ratio in saving]),
        *others,
        *(Column(heading, hint, n, [f"{count:,}" for count in n]) for heading, hint, n in counts),
        Column("level", "mean bits per coordinate of the uploads", levels,
               ["–" if level is None else f"{level:.2f}" for level in levels]),
    ]  # fmt: skip


def _simulated_columns(runs: Sequence[PageRun]) -> list[Column]:
    """Return time, energy and late replies of the runs with a link model."""
    columns = []
    for cost in available_costs(runs)[1:]:
        totals = [cost.values(run)[-1] for run in runs]
        texts = format_column(total or 0 for total in totals)
        shown = ["–" if t is None else text for t, text in zip(totals, texts, strict=True)]
        columns.append(
            Column(cost.heading, f"{cost.cost.title} under the link model", totals, shown)
        )
    late = [run.result.late for run in runs]
    if any(late):
        texts = ["–" if count is None else f"{count:,}" for count in late]
        columns.append(Column("late", "replies that the deadline lost", late, texts))
    return columns


def _sort_value(number: float | None) -> str | None:
    return None if number is None else repr(float(number))
