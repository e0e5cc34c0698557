"""Renders the page as one file with inline style, script and data, and no network access."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from aquila.report.page.bars import quality_section
from aquila.report.page.charts import quality_chart
from aquila.report.page.comparison import Comparison, compare
from aquila.report.page.featured import featured_runs
from aquila.report.page.figures import (
    ReadClassCounts,
    chart_figure,
    curves_section,
    devices_section,
    split_section,
)
from aquila.report.page.html import Html, tag, void_tag
from aquila.report.page.method_table import methods_section
from aquila.report.page.packed_data import pack_page_data
from aquila.report.page.reader import PageRuns
from aquila.report.page.runs import PageRun
from aquila.report.page.settings import (
    environment_section,
    glossary_section,
    reproduce_section,
    settings_section,
)
from aquila.report.page.summary import description, page_header
from aquila.report.page.tiles import tiles_section

SCRIPTS = (
    "data.js", "format.js", "scales.js", "labels.js", "hover.js", "charts.js", "zoom.js",
    "export.js", "tables.js", "quality.js", "devices.js", "runs.js", "main.js",
)  # fmt: skip
STYLES = ("page.css", "tables.css", "figures.css", "small.css")
MARK_SCRIPTED = "document.documentElement.classList.add('js')"
"""Runs before the first paint, so that the layout does not shift later."""

NAVIGATION = {
    "quality": "Cost of quality", "methods": "Methods", "curves": "Curves", "devices": "Devices",
    "split": "Data split", "settings": "Settings", "reproduce": "Reproduce", "glossary": "Glossary",
}  # fmt: skip


def _no_class_counts(run: object) -> None:
    return None


def render(
    found: PageRuns, commands: Sequence[str] = (), class_counts: ReadClassCounts = _no_class_counts
) -> str:
    """Return the report of the runs as one self-contained HTML page."""
    runs, comparison = found.runs, compare(found.runs)
    baseline = comparison.reference if comparison else runs[0]
    featured = featured_runs(runs, comparison)
    sections = [
        *([quality_section(runs, comparison, featured)] if comparison else []),
        methods_section(runs, baseline, featured),
        curves_section(runs, featured),
        devices_section(runs, comparison.lead if comparison else runs[0]),
        split_section(runs, class_counts),
        settings_section(runs),
        environment_section(runs),
        reproduce_section(commands),
        glossary_section(),
    ]
    shown_parts = [key for key in NAVIGATION if comparison or key != "quality"]
    links = tag(
        "div", *(tag("a", NAVIGATION[key], href=f"#{key}") for key in shown_parts), class_="links"
    )
    body = tag(
        "body",
        tag("a", "Skip to the results", href="#results", class_="skip"),
        page_header(found, comparison, _overview(runs, comparison, featured)),
        tag("nav", links, _run_tools(runs, featured), aria_label="Sections of the report"),
        tag("main", *sections, id="results", tabindex=-1),
        tag(
            "footer",
            tag("p", "Written by ", tag("code", "aquila report"), ". This page works offline."),
        ),
        tag("script", Html(pack_page_data(runs, comparison)), type="application/json", id="data"),
        tag("script", script()),
    )
    title = f"AQUILA report: {description(comparison.runs if comparison else runs)}"
    return f"<!DOCTYPE html>\n{tag('html', _head(title), body, lang='en')}\n"


def _overview(runs: Sequence[PageRun], comparison: Comparison | None, featured: set[str]) -> Html:
    """Return the tiles, and quality against uplink."""
    tiles = tiles_section(runs, comparison)
    if comparison is None:
        return tag("div", tiles, class_="overview")
    chart = quality_chart(comparison.measure, runs)
    return tag("div", chart_figure(chart, runs, featured, hero=True), tiles, class_="overview")


def _run_tools(runs: Sequence[PageRun], featured: set[str]) -> Html:
    """Return the filter of runs, and the button that shows all of many runs."""
    tools = [
        void_tag("input", type="search", id="run-filter", placeholder="filter runs",
                 aria_label="Filter runs by name"),
    ]  # fmt: skip
    if len(featured) < len(runs):
        text = f"show all {len(runs)} runs"
        tools.append(tag("button", text, type="button", id="all-runs", aria_pressed="false"))
    return tag("div", *tools, class_="run-tools needs-js")


@cache
def script() -> Html:
    """Return the JavaScript of the page: uPlot with its licence, and ours."""
    licence = _resource("vendor", "LICENSE").strip()
    ours = "\n".join(_resource("resources", name) for name in SCRIPTS)
    plot = _resource("vendor", "uPlot.iife.min.js")
    return Html(f"/* uPlot\n{licence}\n*/\n{plot}\n(() => {{\n'use strict';\n{ours}}})();\n")


@cache
def style() -> Html:
    """Return the CSS of the page."""
    ours = "\n".join(_resource("resources", name) for name in STYLES)
    return Html(_resource("vendor", "uPlot.min.css") + "\n" + ours)


def _head(title: str) -> Html:
    scripts = " ".join(_csp_hash(text) for text in (MARK_SCRIPTED, script()))
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src {_csp_hash(style())}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return tag(
        "head",
        void_tag("meta", charset="utf-8"),
        void_tag("meta", http_equiv="Content-Security-Policy", content=policy),
        void_tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void_tag("meta", name="color-scheme", content="light dark"),
        void_tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", style()),
        tag("script", Html(MARK_SCRIPTED)),
    )


def _csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _resource(*path: str) -> str:
    return files("aquila.report.page").joinpath(*path).read_text(encoding="utf-8")
