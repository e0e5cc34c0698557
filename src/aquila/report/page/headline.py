"""The top of a report: one sentence, and the bytes every run needed to become equally good."""

import math
from collections.abc import Sequence

from aquila.report.page.amounts import MIB, amount, mib, times
from aquila.report.page.lines import looks
from aquila.report.page.markup import Markup, tag, void
from aquila.report.page.method_table import swatch
from aquila.report.page.runs import Run, Runs
from aquila.report.page.settings import common_facts, problem_differences, show
from aquila.report.page.story import Comparison, Measure, measures


def header(found: Runs, comparison: Comparison | None) -> Markup:
    """Return what was run, and what came of it."""
    runs = found.runs
    notes = []
    if differing := problem_differences(runs):
        notes.append(
            f"These runs are not of one problem: they differ in {', '.join(differing)}. "
            "The sentence on top is of one problem only; further down all runs stand side by side."
        )
    if found.empty:
        names = ", ".join(str(path) for path in found.empty)
        notes.append(f"Left out, since not one round was finished: {names}.")
    notes += [f"Left out, since broken: {reason}." for reason in found.broken]
    return tag(
        "header",
        tag("p", f"AQUILA · report of {len(runs)} run{'s' * (len(runs) > 1)}", class_="eyebrow"),
        tag("h1", headline(runs, comparison)),
        tag("p", _second(comparison), class_="second"),
        tag("p", description(comparison.runs if comparison else runs), class_="what"),
        *(tag("p", note, class_="note", role="note") for note in notes),
    )  # fmt: skip


def headline(runs: Sequence[Run], comparison: Comparison | None) -> str:
    """Return the one sentence that a reader should take away."""
    if comparison is None:
        sent = sum(run.result.uplink_bytes for run in runs)
        return f"{sum(len(run.records) for run in runs)} rounds took {mib(sent)} of uplink."
    lead, baseline, needed = comparison.lead, comparison.baseline, comparison.needed
    goal = f"{comparison.measure.text(comparison.target)} {comparison.measure.title}"
    if not comparison.measure.higher_is_better:
        goal = f"a {comparison.measure.title} of {comparison.measure.text(comparison.target)}"
    first = needed[lead.label] or 0
    sentence = f"{lead.label} reaches {goal} with {mib(first)} of uplink"
    if lead is baseline:
        return f"{sentence}."
    other = needed[baseline.label] or 0
    if other <= first:
        return f"{sentence}; {baseline.label} needs only {mib(other)}."
    ratio = times(other / max(first, 1))
    return f"{sentence}; {baseline.label} needs {mib(other)}, {ratio} times as much."


def description(runs: Sequence[Run]) -> str:
    """Return in one line what the runs have in common."""
    facts = common_facts(runs)
    forms = {
        "data": "{}", "model": "{}", "devices": "{} devices", "split": "split {}",
        "rounds": "{} rounds", "seed": "seed {}",
    }  # fmt: skip
    told = [form.format(show(facts[name])) for name, form in forms.items() if name in facts]
    return ", ".join(told) or "The folders do not say what was run."


def same_quality(runs: Sequence[Run], comparison: Comparison) -> Markup:
    """Return the bars of bytes to the same quality, and the controls that change the target."""
    needed = [comparison.needed[run.label] for run in runs]
    most = max(count or 0 for count in needed)
    rows = [
        tag(
            "tr",
            tag("th", swatch(look), run.label, scope="row", class_="own" if run.own else None),
            tag("td", _bar(count, most), class_=f"bar-cell {look.colour}"),
            tag("td", _needed(count), class_="number"),
            data_run=number,
        )
        for number, (run, look, count) in enumerate(zip(runs, looks(runs), needed, strict=True))
    ]
    order = sorted(range(len(runs)), key=lambda n: math.inf if (c := needed[n]) is None else c)
    heads = [tag("th", "method", scope="col"), tag("td"), tag("th", "MiB", scope="col")]
    text = f"{comparison.measure.title} {comparison.measure.text(comparison.target)}"
    return tag(
        "section",
        tag("h2", "Bytes to the same quality"),
        _controls(measures(runs), comparison),
        tag(
            "table",
            tag("caption", "Uplink until a run first reached ", tag("span", text, id="goal"),
                ", MiB of real frames."),
            tag("thead", tag("tr", *heads)),
            tag("tbody", *(rows[number] for number in order)),
            class_="race",
        ),
        id="quality",
    )  # fmt: skip


def _second(comparison: Comparison | None) -> str:
    if comparison is None:
        return ""
    said = []
    if comparison.cheapest is not comparison.lead:
        count = comparison.needed[comparison.cheapest.label] or 0
        said.append(f"Cheapest to get there: {comparison.cheapest.label}, {mib(count)}.")
    missed = [run.label for run in comparison.runs if comparison.needed[run.label] is None]
    if missed:
        said.append(f"Not reached by {', '.join(missed)}.")
    return " ".join(said)


def _controls(known: Sequence[Measure], comparison: Comparison) -> Markup:
    options = [tag("option", m.title, value=m.key, selected=m is comparison.measure) for m in known]
    return tag(
        "div",
        tag("label", "measured by ", tag("select", *options, id="measure")),
        tag("label", "target ", void("input", type="range", id="target", min=0, max=200)),
        class_="controls needs-js",
    )


def _bar(count: int | None, most: int) -> Markup:
    share = 100 * count / most if count and most else 0
    return tag("svg", tag("rect", width=f"{share:.2f}%", height="100%"), aria_hidden="true")


def _needed(count: int | None) -> str:
    return "not reached" if count is None else amount(count / MIB)
