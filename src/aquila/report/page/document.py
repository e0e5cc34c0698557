"""The page as one file: style, script and data inside, and a policy that forbids the network."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from aquila.report.page.figures import ClassCounts, curves_section, devices_section, split_section
from aquila.report.page.headline import description, header, same_quality
from aquila.report.page.markup import Markup, tag, void
from aquila.report.page.method_table import methods_section
from aquila.report.page.pack import packed
from aquila.report.page.runs import Runs
from aquila.report.page.settings import (
    environment_section,
    glossary_section,
    reproduce_section,
    settings_section,
)
from aquila.report.page.story import compare

SCRIPTS = ("data.js", "charts.js", "tables.js", "devices.js", "main.js")
STARTED = "document.documentElement.classList.add('js')"
"""Runs before anything is painted, so that nothing moves when the rest of the script comes."""

LINKS = {
    "quality": "Same quality", "methods": "Methods", "curves": "Curves", "devices": "Devices",
    "split": "Split", "settings": "Settings", "reproduce": "Reproduce", "glossary": "Units",
}  # fmt: skip


def _unknown(run: object) -> None:
    return None


def render(found: Runs, commands: Sequence[str] = (), class_counts: ClassCounts = _unknown) -> str:
    """Return the report of the runs as one HTML page that needs nothing else."""
    runs, comparison = found.runs, compare(found.runs)
    baseline = comparison.baseline if comparison else runs[0]
    sections = [
        *([same_quality(runs, comparison)] if comparison else []),
        methods_section(runs, baseline),
        curves_section(runs),
        devices_section(runs, comparison.lead if comparison else runs[0]),
        split_section(runs, class_counts),
        settings_section(runs),
        environment_section(runs),
        reproduce_section(commands),
        glossary_section(),
    ]
    here = [key for key in LINKS if comparison or key != "quality"]
    links = [tag("a", LINKS[key], href=f"#{key}") for key in here]
    body = tag(
        "body",
        tag("a", "Skip to the results", href="#results", class_="skip"),
        header(found, comparison),
        tag("nav", *links, aria_label="Parts of the report"),
        tag("main", *sections, id="results", tabindex=-1),
        tag(
            "footer",
            tag("p", "Written by ", tag("code", "aquila report"), ". It needs no network."),
        ),
        tag("script", Markup(packed(runs, comparison)), type="application/json", id="data"),
        tag("script", script()),
    )
    title = f"AQUILA report: {description(comparison.runs if comparison else runs)}"
    return f"<!DOCTYPE html>\n{tag('html', _head(title), body, lang='en')}\n"


@cache
def script() -> Markup:
    """Return the code of the page: uPlot with its licence, and ours."""
    licence = _resource("vendor", "LICENSE").strip()
    ours = "\n".join(_resource("resources", name) for name in SCRIPTS)
    plot = _resource("vendor", "uPlot.iife.min.js")
    return Markup(f"/* uPlot\n{licence}\n*/\n{plot}\n(() => {{\n'use strict';\n{ours}}})();\n")


@cache
def style() -> Markup:
    """Return the style of the page."""
    return Markup(_resource("vendor", "uPlot.min.css") + "\n" + _resource("resources", "page.css"))


def _head(title: str) -> Markup:
    scripts = " ".join(_fingerprint(text) for text in (STARTED, script()))
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src {_fingerprint(style())}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return tag(
        "head",
        void("meta", charset="utf-8"),
        void("meta", http_equiv="Content-Security-Policy", content=policy),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", name="color-scheme", content="light dark"),
        void("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", style()),
        tag("script", Markup(STARTED)),
    )


def _fingerprint(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _resource(*path: str) -> str:
    return files("aquila.report.page").joinpath(*path).read_text(encoding="utf-8")
