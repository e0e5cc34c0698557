"""The table of methods. The script of the page sorts it and recomputes the savings."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from aquila.report.costs import BOTH_WAYS
from aquila.report.page.charts import LineStyle, line_styles
from aquila.report.page.costs import UPLINK, available_costs
from aquila.report.page.format import format_bytes, format_ratio
from aquila.report.page.html import Html, tag
from aquila.report.page.measures import LOSS, Measure, available_measures
from aquila.report.page.runs import PageRun


@dataclass(frozen=True)
class Column:
    """A column: heading, tooltip, numbers and their text."""

    heading: str
    hint: str
    numbers: Sequence[float | None]
    texts: Sequence[str]


def methods_section(runs: Sequence[PageRun], baseline: PageRun, featured: set[str]) -> Html:
    """Return the table with one row per run: quality, traffic and saving."""
    traffic = _traffic_columns(runs, baseline)
    columns = [*_quality_columns(runs), *traffic[:3], *_simulated_columns(runs), *traffic[3:]]
    heads = [tag("th", "method", scope="col", data_kind="text")]
    heads += [tag("th", c.heading, scope="col", title=c.hint, class_="number") for c in columns]
    rows = [
        _row(run, style, n, columns, run.label not in featured)
        for n, (run, style) in enumerate(zip(runs, line_styles(runs), strict=True))
    ]
    options = [
        tag("option", run.label, value=n, selected=run is baseline) for n, run in enumerate(runs)
    ]
    table = tag(
        "table",
        caption("One row per run, after its last round. Saving: total uplink of ",
                tag("span", baseline.label, id="baseline-name"), " ÷ total uplink of the run."),
        tag("thead", tag("tr", *heads)), tag("tbody", *rows), id="methods-table",
    )  # fmt: skip
    return tag(
        "section",
        tag("h2", "Methods"),
        tag("div", tag("label", "saving compared with ", tag("select", *options, id="baseline")),
            *table_buttons("methods-table"), class_="controls needs-js"),
        scrollable(table, "Table of methods"),
        id="methods",
    )  # fmt: skip


def scrollable(table: Html, name: str) -> Html:
    """Return a table that scrolls horizontally where it does not fit."""
    region = tag("div", table, class_="scrollable", role="region", tabindex=0, aria_label=name)
    return tag("div", region, class_="scroll-frame")


def table_buttons(table: str) -> list[Html]:
    """Return the buttons that save and copy a table."""
    return [
        tag("button", "CSV", type="button", data_csv=table, title="save the table as CSV",
            aria_label="save the table as CSV"),
        tag("button", "copy", type="button", data_copy_table=table,
            title="copy the table as Markdown", aria_label="copy the table as Markdown"),
    ]  # fmt: skip


def caption(*text: str) -> Html:
    """Return a caption that stays visible when its table scrolls horizontally."""
    return tag("caption", tag("span", *text, class_="sticky"))


def swatch(style: LineStyle) -> Html:
    """Return a sample of a run's line."""
    line = tag("path", d="M1 4H23", class_=style.classes)
    return tag("svg", line, class_="swatch", viewBox="0 0 24 8", aria_hidden="true")


def run_name(run: PageRun, style: LineStyle) -> Html:
    """Return the heading of a row: the line and the name of a run."""
    name = [swatch(style), run.label]
    if run.members:
        name.append(tag("small", f" mean of {len(run.members)} seeds"))
    if len(run.records) < run.planned_rounds:
        stopped = f" stopped after {len(run.records)} of {run.planned_rounds} rounds"
        name.append(tag("small", stopped))
    return tag(
        "th",
        *name,
        scope="row",
        data_value=run.label,
        class_="aquila" if run.is_aquila else None,
    )


def _row(
    run: PageRun, style: LineStyle, number: int, columns: Sequence[Column], minor: bool
) -> Html:
    cells = [
        tag("td", c.texts[number], class_="number", data_value=_sort_value(c.numbers[number]),
            data_saving=c.heading == "saving")
        for c in columns
    ]  # fmt: skip
    return tag(
        "tr",
        run_name(run, style),
        *cells,
        class_="aquila" if run.is_aquila else None,
        data_run=number,
        data_minor=minor,
    )


def _quality_columns(runs: Sequence[PageRun]) -> list[Column]:
    columns = []
    for measure in available_measures(runs):
        numbers = [measure.last(run) for run in runs]
        hint = f"latest {measure.title}"
        if any(run.members for run in runs):
            hint += "; ± half the range over the seeds"
        heading = "loss" if measure == LOSS else measure.title
        texts = [_with_spread(measure, run) for run in runs]
        columns.append(Column(heading, hint, numbers, texts))
    return columns


def _with_spread(measure: Measure, run: PageRun) -> str:
    text = measure.format_value(measure.last(run))
    last = [v for member in run.members if (v := measure.last(member)) is not None]
    if not last:
        return text
    half = (max(last) - min(last)) / 2
    return f"{text} ± {100 * half:.1f}" if measure.is_fraction else f"{text} ± {half:.2g}"


def _traffic_columns(runs: Sequence[PageRun], baseline: PageRun) -> list[Column]:
    results = [run.result for run in runs]
    sizes: list[tuple[str, str, Sequence[float]]] = [
        ("uplink", "real frames sent by devices", [r.uplink_bytes for r in results]),
        ("both ways", "uplink and downlink, real frames",
         [BOTH_WAYS.total(run.records) or 0 for run in runs]),
        ("paper", "b·d: bits per coordinate × coordinates, as papers count the uplink",
         [r.paper_bits / 8 for r in results]),
    ]  # fmt: skip
    counts = [
        ("uploads", "replies with a vector", [r.uploads for r in results]),
        ("skips", "replies without a vector", [r.skips for r in results]),
    ]
    levels = [_mean_level(run) for run in runs]
    saving = [baseline.result.uplink_bytes / max(r.uplink_bytes, 1) for r in results]
    uplink, *others = [
        Column(heading, hint, n, [format_bytes(size) for size in n]) for heading, hint, n in sizes
    ]
    return [
        uplink,
        Column("saving", "uplink of the baseline ÷ this uplink", saving,
               [f"{format_ratio(ratio)} ×" for ratio in saving]),
        *others,
        *(Column(heading, hint, n, [f"{count:,}" for count in n]) for heading, hint, n in counts),
        Column("level", "mean bits per coordinate of the uploads", levels,
               ["–" if level is None else f"{level:.2f}" for level in levels]),
    ]  # fmt: skip


def _mean_level(run: PageRun) -> float | None:
    known = [v for member in run.repetitions if (v := member.result.mean_level) is not None]
    return fmean(known) if known else None


def _simulated_columns(runs: Sequence[PageRun]) -> list[Column]:
    """Return simulated time, energy and late replies of runs with a link model, and real time."""
    columns = []
    for cost in available_costs(runs):
        if cost.cost in (UPLINK.cost, BOTH_WAYS):
            continue
        totals = [cost.total(run) for run in runs]
        hint = f"{cost.cost.title} of the whole run"
        columns.append(Column(cost.cost.title, hint, totals, [cost.format(t) for t in totals]))
    late = [run.result.late for run in runs]
    if any(late):
        texts = ["–" if count is None else f"{count:,}" for count in late]
        columns.append(Column("late", "replies that the deadline lost", late, texts))
    return columns


def _sort_value(number: float | None) -> str | None:
    return None if number is None else repr(float(number))
