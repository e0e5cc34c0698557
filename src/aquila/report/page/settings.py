"""The sections on settings, environment, reproduction and terms."""

import json
from collections.abc import Mapping, Sequence

from aquila.report.page.active_settings import ENVIRONMENT, active_parameters, active_settings
from aquila.report.page.html import Html, tag
from aquila.report.page.method_table import caption, scrollable
from aquila.report.page.runs import PROBLEM_SETTINGS, PageRun
from aquila.report.units import SECOND_UNITS, SPACE, format_quantity

NAMES = {"dimension": "model parameters"}
"""Names of settings for readers, if they differ from those in run.json."""
COUNTS = ("dimension", "samples", "test_samples", "devices")
DEFAULTS_NOTE = "All other settings have their default values."
GLOSSARY = {
    "KB, MB, GB": "1,000 bytes, 1,000,000 bytes and 1,000,000,000 bytes.",
    "uplink, downlink": "total length of the frames that the devices and the server sent.",
    "both ways": "uplink and downlink together.",
    "paper": "b·d: bits per coordinate × coordinates of every upload, as papers count the uplink.",
    "level": "b, the bits per coordinate of an upload; a float32 has 32.",
    "upload, skip": "a reply with a vector; a reply without one, because the update is small.",
    "error ratio": "‖ε‖ / ‖v‖: quantization error relative to the quantized vector, mean over "
    "devices. Stochastic quantizers can exceed 1; their error averages out to zero.",
    "saving": "uplink of the baseline ÷ uplink of the run.",
    "dense": "uploads of 32 bits per coordinate, without compression.",
    "simulated time, energy": "those of the link model; energy is that of all devices.",
    "real time": "wall-clock time of the simulation on the machine that ran it.",
    "late": "replies that arrived after the deadline and were lost.",
}


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
    """Return a setting as text; large counts have separators."""
    return f"{value:,}" if name in COUNTS and type(value) is int else format_value(value)


def settings_section(runs: Sequence[PageRun]) -> Html:
    """Return the common settings, and a table of those that differ."""
    settings = [active_settings(run.facts) for run in runs]
    shared = {n: v for n, v in settings[0].items() if all(s.get(n) == v for s in settings)}
    names = dict.fromkeys(name for own in settings for name in own if name not in shared)
    heads = ["run", "parameters", *(name.replace("_", " ") for name in names)]
    rows = [
        tag("tr", tag("th", run.label, scope="row"), tag("td", _parameters(run), class_="long"),
            *(tag("td", format_setting(name, own.get(name))) for name in names))
        for run, own in zip(runs, settings, strict=True)
    ]  # fmt: skip
    table = tag(
        "table",
        caption("Parameters of the methods, and settings that differ between the runs"),
        tag("thead", tag("tr", *(tag("th", head, scope="col") for head in heads))),
        tag("tbody", *rows),
    )
    common = [_definition_list(shared), tag("p", DEFAULTS_NOTE, class_="hint")]
    return tag(
        "section",
        tag("h2", "Settings"),
        *(common if shared else [tag("p", "The runs have no known setting in common.")]),
        scrollable(table, "Settings by run"),
        id="settings",
    )


def environment_section(runs: Sequence[PageRun]) -> Html:
    """Return date, duration, software versions and hardware of the runs."""
    every = [run for merged in runs for run in merged.repetitions]
    stated = {
        name: ", ".join(
            dict.fromkeys(format_value(run.facts[name]) for run in every if name in run.facts)
        )
        for name in ENVIRONMENT
    }
    known = {**_times(every), **{n: text for n, text in stated.items() if text not in ("", "none")}}
    body = (
        _definition_list(known)
        if known
        else tag("p", "The run folders do not record the environment.")
    )
    return tag("section", tag("h2", "Environment"), body, id="environment")


def reproduce_section(commands: Sequence[str]) -> Html:
    """Return the command lines that repeat these runs."""
    if not commands:
        text = tag(
            "p",
            "No command repeats these runs: they were started from Python, or their "
            "folders do not record the settings.",
        )
        return tag("section", tag("h2", "How to reproduce"), text, id="reproduce")
    lines = tag("pre", tag("code", "\n".join(commands)), tabindex=0, aria_label="Command lines")
    copy = tag("button", "copy", type="button", data_copy="reproduce", class_="needs-js",
               aria_label="copy the command lines")  # fmt: skip
    block = tag("div", lines, copy, class_="code-block")
    return tag("section", tag("h2", "How to reproduce"), block, id="reproduce")


def glossary_section() -> Html:
    """Return the meaning of terms and units."""
    return tag(
        "section",
        tag("h2", "Glossary"),
        _definition_list(GLOSSARY, "glossary"),
        id="glossary",
    )


def _times(runs: Sequence[PageRun]) -> dict[str, str]:
    """Return when the runs started and how long they took, as far as it is known."""
    started = sorted(run.started for run in runs if run.started)
    if not started:
        return {}
    days = dict.fromkeys(f"{date:%Y-%m-%d}" for date in (started[0], started[-1]))
    total = sum(sum(run.round_seconds) for run in runs)
    return {
        "date": " to ".join(days),
        "duration of all runs": format_quantity(total, SECOND_UNITS, SPACE),
    }


def _definition_list(facts: Mapping[str, object], kind: str = "facts") -> Html:
    pairs = (
        tag(
            "div",
            tag("dt", NAMES.get(name, name.replace("_", " "))),
            tag("dd", format_setting(name, value)),
        )
        for name, value in facts.items()
    )
    return tag("dl", *pairs, class_=kind)


def _parameters(run: PageRun) -> str:
    given = active_parameters(run.facts)
    return ", ".join(f"{name}={format_value(value)}" for name, value in given.items()) or "–"


def _settings_of(run: PageRun) -> dict[str, object]:
    return {name: v for name, v in run.facts.items() if name not in ("method", "parameters")}
