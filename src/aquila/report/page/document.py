"""Renders the page as one file with inline style, script and data, and no network access."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from aquila.report.page.comparison import compare
from aquila.report.page.figures import (
    ReadClassCounts,
    curves_section,
    devices_section,
    split_section,
)
from aquila.report.page.html import Html, tag, void_tag
from aquila.report.page.method_table import methods_section
from aquila.report.page.packed_data import pack_page_data
from aquila.report.page.runs import PageRuns
from aquila.report.page.settings import (
    environment_section,
    glossary_section,
    reproduce_section,
    settings_section,
)
from aquila.report.page.summary import description, page_header, quality_section

SCRIPTS = ("data.js", "charts.js", "tables.js", "devices.js", "main.js")
MARK_SCRIPTED = "document.documentElement.classList.add('js')"
"""Runs before the first paint, so that the layout does not shift later."""

NAVIGATION = {
    "quality": "Bytes to quality", "methods": "Methods", "curves": "Curves", "devices": "Devices",
    "split": "Data split", "settings": "Settings", "reproduce": "Reproduce", "glossary": "Glossary",
}  # fmt: skip


def _no_class_counts(run: object) -> None:
    return None


def render(
    found: PageRuns, commands: Sequence[str] = (), class_counts: ReadClassCounts = _no_class_counts
) -> str:
    """Return the report of the runs as one self-contained HTML page."""
    runs, comparison = found.runs, compare(found.runs)
    baseline = comparison.baseline if comparison else runs[0]
    sections = [
        *([quality_section(runs, comparison)] if comparison else []),
        methods_section(runs, baseline),
        curves_section(runs),
        devices_section(runs, comparison.lead if comparison else runs[0]),
        split_section(runs, class_counts),
        settings_section(runs),
        environment_section(runs),
        reproduce_section(commands),
        glossary_section(),
    ]
    shown_parts = [key for key in NAVIGATION if comparison or key != "quality"]
    links = [tag("a", NAVIGATION[key], href=f"#{key}") for key in shown_parts]
    body = tag(
        "body",
        tag("a", "Skip to the results", href="#results", class_="skip"),
        page_header(found, comparison),
        tag("nav", *links, aria_label="Sections of the report"),
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
    return Html(_resource("vendor", "uPlot.min.css") + "\n" + _resource("resources", "page.css"))


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
