"""The table of methods; the page's script sorts it and recomputes the saving."""

from collections.abc import Sequence
from dataclasses import dataclass

from aquila.report.page.amounts import GIB, MIB, column, times
from aquila.report.page.lines import Look, looks
from aquila.report.page.markup import Markup, tag
from aquila.report.page.runs import Run
from aquila.report.page.story import LOSS, measures


@dataclass(frozen=True)
class Column:
    """A heading, the numbers below it, how they are written, and what they are."""

    heading: str
    about: str
    numbers: Sequence[float | None]
    texts: Sequence[str]


def methods_section(runs: Sequence[Run], baseline: Run) -> Markup:
    """Return a row a run: quality, what was sent, and what that saves."""
    columns = [*_quality(runs), *_traffic(runs, baseline)]
    heads = [tag("th", "method", scope="col", data_kind="text")]
    heads += [tag("th", c.heading, scope="col", title=c.about, class_="number") for c in columns]
    rows = [
        _row(run, look, n, columns)
        for n, (run, look) in enumerate(zip(runs, looks(runs), strict=True))
    ]
    options = [
        tag("option", run.label, value=n, selected=run is baseline) for n, run in enumerate(runs)
    ]
    return tag(
        "section",
        tag("h2", "Methods"),
        tag("div", tag("label", "saving against ", tag("select", *options, id="baseline")),
            class_="controls needs-js"),
        tag("div",
            tag("table",
                caption("One row a run, after its last round. Saving: uplink of ",
                        tag("span", baseline.label, id="baseline-name"),
                        " over the uplink of the row, whole runs."),
                tag("thead", tag("tr", *heads)), tag("tbody", *rows), id="methods-table"),
            class_="wide", role="region", tabindex=0, aria_label="Table of methods"),
        id="methods",
    )  # fmt: skip


def caption(*text: str) -> Markup:
    """Return a caption that stays in view when its table is scrolled sideways."""
    return tag("caption", tag("span", *text, class_="stay"))


def swatch(look: Look) -> Markup:
    """Return a piece of a run's line."""
    line = tag("path", d="M1 4H23", class_=look.classes)
    return tag("svg", line, class_="swatch", viewBox="0 0 24 8", aria_hidden="true")


def _row(run: Run, look: Look, number: int, columns: Sequence[Column]) -> Markup:
    name = [swatch(look), run.label]
    if len(run.records) < run.planned:
        stopped = f" stopped after {len(run.records)} of {run.planned} rounds"
        name.append(tag("small", stopped))
    cells = [
        tag("td", c.texts[number], class_="number", data_value=_value(c.numbers[number]),
            data_saving=c.heading == "saving")
        for c in columns
    ]  # fmt: skip
    return tag(
        "tr",
        tag("th", *name, scope="row", data_value=run.label),
        *cells,
        class_="own" if run.own else None,
        data_run=number,
    )


def _quality(runs: Sequence[Run]) -> list[Column]:
    columns = []
    for measure in measures(runs):
        numbers = [measure.last(run) for run in runs]
        about = f"latest {measure.title}"
        heading = "loss" if measure is LOSS else measure.title
        columns.append(Column(heading, about, numbers, [measure.text(n) for n in numbers]))
    return columns


def _traffic(runs: Sequence[Run], baseline: Run) -> list[Column]:
    results = [run.result for run in runs]
    down = [sum(r.downlink_bytes for r in run.records) for run in runs]
    sizes = [
        ("uplink MiB", "real frames from devices", [r.uplink_bytes / MIB for r in results]),
        ("downlink MiB", "real frames to devices", [count / MIB for count in down]),
        ("paper GiB", "b·d: bits times coordinates, as the papers count the uplink",
         [r.paper_bits / 8 / GIB for r in results]),
    ]  # fmt: skip
    counts = [
        ("uploads", "replies with a vector", [r.uploads for r in results]),
        ("skips", "replies without a vector", [r.skips for r in results]),
    ]
    levels = [r.mean_level for r in results]
    saving = [baseline.result.uplink_bytes / max(r.uplink_bytes, 1) for r in results]
    uplink, *others = [Column(heading, about, n, column(n)) for heading, about, n in sizes]
    return [
        uplink,
        Column("saving", "uplink of the baseline over this uplink", saving,
               [f"{times(ratio)} ×" for ratio in saving]),
        *others,
        *(Column(heading, about, n, [f"{count:,}" for count in n]) for heading, about, n in counts),
        Column("level", "mean bits a coordinate of the uploads", levels,
               ["–" if level is None else f"{level:.2f}" for level in levels]),
    ]  # fmt: skip


def _value(number: float | None) -> str | None:
    return None if number is None else repr(float(number))
