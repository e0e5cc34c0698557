"""The sections on settings, environment, reproduction and terms."""

import json
from collections.abc import Mapping, Sequence

from aquila.report.page.html import Html, tag
from aquila.report.page.method_table import caption
from aquila.report.page.runs import PROBLEM_SETTINGS, PageRun

ZERO_MEANS_ALL = ("samples", "test_samples", "batch_size")
ENVIRONMENT = ("aquila", "torch", "python", "machine", "gpu")

GLOSSARY = {
    "MiB": "2²⁰ bytes.",
    "uplink, downlink": "total length of the frames that the devices and the server sent.",
    "paper MiB": "b·d: bits per coordinate × coordinates of every upload, as papers count the "
    "uplink.",
    "level": "b, the bits per coordinate of an upload; a float32 has 32.",
    "upload, skip": "a reply with a vector; a reply without one, because the update is small.",
    "error ratio": "‖ε‖ / ‖v‖: quantization error relative to the quantized vector, mean over "
    "devices. Stochastic quantizers can exceed 1; their error averages out to zero.",
    "saving": "uplink of the baseline ÷ uplink of the run.",
    "time, energy": "simulated by the link model; energy is that of all devices.",
    "late": "replies that arrived after the deadline and were lost.",
}  # fmt: skip


def common_facts(runs: Sequence[PageRun]) -> dict[str, object]:
    """Return the settings that are equal in all runs."""
    first, *others = [_settings_of(run) for run in runs]
    return {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in others)
    }


def problem_differences(runs: Sequence[PageRun]) -> list[str]:
    """Return the names of the problem settings in which runs differ."""
    columns = zip(*(run.problem for run in runs), strict=True)
    return [
        name for name, column in zip(PROBLEM_SETTINGS, columns, strict=True) if len(set(column)) > 1
    ]


def format_value(value: object) -> str:
    """Return a setting as text."""
    if value is None or value == "":
        return "–"
    return value if isinstance(value, str) else json.dumps(value)


def format_setting(name: str, value: object) -> str:
    """Return a setting as text; a count of 0 that stands for all samples becomes `all`."""
    return "all" if name in ZERO_MEANS_ALL and value == 0 else format_value(value)


def settings_section(runs: Sequence[PageRun]) -> Html:
    """Return the common settings, and a table of those that differ."""
    shared = common_facts(runs)
    body = {name: v for name, v in shared.items() if name not in ENVIRONMENT}
    names = dict.fromkeys(name for run in runs for name in _settings_of(run) if name not in shared)
    heads = ["run", "parameters", *names]
    rows = [
        tag("tr", tag("th", run.label, scope="row"), tag("td", _parameters(run), class_="long"),
            *(tag("td", format_setting(name, _settings_of(run).get(name))) for name in names))
        for run in runs
    ]  # fmt: skip
    table = tag(
        "table",
        caption("Settings that differ between the runs"),
        tag("thead", tag("tr", *(tag("th", head, scope="col") for head in heads))),
        tag("tbody", *rows),
    )
    return tag(
        "section",
        tag("h2", "Settings"),
        _definition_list(body) if body else tag("p", "The runs have no known setting in common."),
        tag(
            "div",
            table,
            class_="scrollable",
            role="region",
            tabindex=0,
            aria_label="Settings by run",
        ),
        id="settings",
    )


def environment_section(runs: Sequence[PageRun]) -> Html:
    """Return software versions and hardware of the runs."""
    stated = {
        name: ", ".join(
            dict.fromkeys(format_value(run.facts[name]) for run in runs if name in run.facts)
        )
        for name in ENVIRONMENT
    }
    known = {name: text for name, text in stated.items() if text}
    body = (
        _definition_list(known)
        if known
        else tag("p", "The run folders do not record the environment.")
    )
    return tag("section", tag("h2", "Environment"), body, id="environment")  # fmt: skip


def reproduce_section(commands: Sequence[str]) -> Html:
    """Return the command lines that repeat these runs."""
    if not commands:
        text = tag(
            "p",
            "No command repeats these runs: they were started from Python, or their "
            "folders do not record the settings.",
        )
    else:
        text = tag("pre", tag("code", "\n".join(commands)), tabindex=0, aria_label="Command lines")
    return tag("section", tag("h2", "How to reproduce"), text, id="reproduce")


def glossary_section() -> Html:
    """Return the meaning of terms and units."""
    return tag(
        "section",
        tag("h2", "Glossary"),
        _definition_list(GLOSSARY, "glossary"),
        id="glossary",
    )


def _definition_list(facts: Mapping[str, object], kind: str = "facts") -> Html:
    pairs = (
        tag("div", tag("dt", name.replace("_", " ")), tag("dd", format_setting(name, value)))
        for name, value in facts.items()
    )
    return tag("dl", *pairs, class_=kind)


def _parameters(run: PageRun) -> str:
    given = run.facts.get("parameters")
    if not isinstance(given, Mapping):
        return "–"
    return ", ".join(f"{name}={format_value(value)}" for name, value in given.items())


def _settings_of(run: PageRun) -> dict[str, object]:
    return {name: v for name, v in run.facts.items() if name not in ("method", "parameters")}
