"""The top of a report: a headline, and what each run needed to the same quality."""

import math
from collections.abc import Sequence

from aquila.report.page.charts import line_styles
from aquila.report.page.comparison import Comparison, Measure, available_measures
from aquila.report.page.costs import PageCost, available_costs
from aquila.report.page.format import format_mib, format_ratio, format_size
from aquila.report.page.html import Html, tag, void_tag
from aquila.report.page.method_table import swatch
from aquila.report.page.protection import protection_notes
from aquila.report.page.runs import PageRun, PageRuns
from aquila.report.page.settings import common_facts, format_value, problem_differences

OBJECTIVES = {
    "uniform": "objective: mean loss over the devices",
    "samples": "objective: mean loss over all samples",
}
"""What a run minimises, by its setting `weights`."""


def page_header(found: PageRuns, comparison: Comparison | None) -> Html:
    """Return headline, description and warnings."""
    runs = found.runs
    notes = []
    if differing := problem_differences(runs):
        notes.append(
            f"These runs solve different problems: they differ in {', '.join(differing)}. "
            "The headline covers the most frequent problem only. The other sections show all runs."
        )
    if found.empty:
        names = ", ".join(str(path) for path in found.empty)
        notes.append(f"Left out, no round completed: {names}.")
    notes += [f"Left out, not readable: {reason}." for reason in found.broken]
    notes += protection_notes(runs)
    return tag(
        "header",
        tag("p", f"AQUILA · report of {len(runs)} run{'s' * (len(runs) > 1)}", class_="eyebrow"),
        tag("h1", summary_sentence(runs, comparison)),
        tag("p", _second_sentence(comparison), class_="subtitle"),
        tag("p", description(comparison.runs if comparison else runs), class_="description"),
        *(tag("p", note, class_="note", role="note") for note in notes),
    )  # fmt: skip


def summary_sentence(runs: Sequence[PageRun], comparison: Comparison | None) -> str:
    """Return the headline."""
    if comparison is None:
        sent = sum(run.result.uplink_bytes for run in runs)
        return f"{sum(len(run.records) for run in runs)} rounds used {format_mib(sent)} of uplink."
    lead, baseline, needed = comparison.lead, comparison.baseline, comparison.needed_bytes
    goal = f"{comparison.measure.format_value(comparison.target)} {comparison.measure.title}"
    if not comparison.measure.higher_is_better:
        goal = (
            f"a {comparison.measure.title} of {comparison.measure.format_value(comparison.target)}"
        )
    first = needed[lead.label] or 0
    sentence = f"{lead.label} reaches {goal} with {format_mib(first)} of uplink"
    if lead is baseline:
        return f"{sentence}."
    other = needed[baseline.label] or 0
    if other <= first:
        return f"{sentence}; {baseline.label} needs only {format_mib(other)}."
    ratio = format_ratio(other / max(first, 1))
    return f"{sentence}; {baseline.label} needs {format_mib(other)}, {ratio} times as much."


def description(runs: Sequence[PageRun]) -> str:
    """Return one line with the main settings that all runs share."""
    facts = common_facts(runs)
    templates = {
        "data": "{}", "model": "{}", "dimension": "{} parameters", "devices": "{} devices",
        "split": "split {}",
        "rounds": "{} rounds", "seed": "seed {}",
    }  # fmt: skip
    parts = [
        form.format(format_value(facts[name])) for name, form in templates.items() if name in facts
    ]
    weights = facts.get("weights")
    if isinstance(weights, str) and weights in OBJECTIVES:
        parts.append(OBJECTIVES[weights])
    return ", ".join(parts) or "The run folders do not record the settings."


def quality_section(runs: Sequence[PageRun], comparison: Comparison) -> Html:
    """Return what each run needed to the same quality, with bars and controls for the target."""
    measure, target, costs = comparison.measure, comparison.target, available_costs(runs)
    needed = [[cost.to_target(run, measure, target) for cost in costs] for run in runs]
    most = max(counts[0] or 0 for counts in needed)
    rows = [
        tag(
            "tr",
            tag("th", swatch(style), run.label, scope="row",
                class_="aquila" if run.is_aquila else None),
            tag("td", _bar(counts[0], most), class_=f"bar-cell {style.colour}"),
            *(tag("td", _format_needed(run, cost, count), class_="number", data_cost=cost.key)
              for cost, count in zip(costs, counts, strict=True)),
            data_run=number,
        )
        for number, (run, style, counts) in enumerate(
            zip(runs, line_styles(runs), needed, strict=True)
        )
    ]  # fmt: skip
    order = sorted(range(len(runs)), key=lambda n: math.inf if (c := needed[n][0]) is None else c)
    heads = [tag("th", "method", scope="col"), tag("td")]
    heads += [tag("th", _heading(cost, costs), scope="col", class_="cost") for cost in costs]
    text = f"{comparison.measure.title} {comparison.measure.format_value(comparison.target)}"
    return tag(
        "section",
        tag("h2", _title(costs)),
        _controls(available_measures(runs), comparison, costs),
        tag(
            "table",
            tag("caption", _caption(costs), " until each run first reached ",
                tag("span", text, id="goal"), "."),
            tag("thead", tag("tr", *heads)),
            tag("tbody", *(rows[number] for number in order)),
            class_="cost-to-quality",
        ),
        id="quality",
    )  # fmt: skip


def _second_sentence(comparison: Comparison | None) -> str:
    if comparison is None:
        return ""
    sentences = []
    if comparison.cheapest is not comparison.lead:
        count = comparison.needed_bytes[comparison.cheapest.label] or 0
        sentences.append(f"Cheapest: {comparison.cheapest.label} with {format_mib(count)}.")
    missed = [run.label for run in comparison.runs if comparison.needed_bytes[run.label] is None]
    if missed:
        sentences.append(f"The target was not reached by {', '.join(missed)}.")
    sentences += _simulated_sentences(comparison)
    return " ".join(sentences)


def _simulated_sentences(comparison: Comparison) -> list[str]:
    """Return time and energy of lead and baseline to the target, under the link model."""
    runs = list(dict.fromkeys((comparison.lead.label, comparison.baseline.label)))
    by_label = {run.label: run for run in comparison.runs}
    sentences = []
    for cost in available_costs(comparison.runs)[1:]:
        needed = [
            cost.to_target(by_label[label], comparison.measure, comparison.target) for label in runs
        ]
        if None not in needed:
            parts = [
                f"{format_size(number or 0)}\u00a0{cost.unit.name} ({label})"
                for label, number in zip(runs, needed, strict=True)
            ]
            sentences.append(f"{cost.cost.title.capitalize()}: {', '.join(parts)}.")
    return sentences


def _title(costs: Sequence[PageCost]) -> str:
    names = "Bytes" if len(costs) == 1 else "Bytes, time and energy"
    return f"{names} to the same quality"


def _caption(costs: Sequence[PageCost]) -> str:
    return "Uplink in MiB" if len(costs) == 1 else "Uplink, simulated time and energy"


def _heading(cost: PageCost, costs: Sequence[PageCost]) -> str:
    return cost.unit.name if len(costs) == 1 else cost.heading


def _controls(known: Sequence[Measure], comparison: Comparison, costs: Sequence[PageCost]) -> Html:
    options = [tag("option", m.title, value=m.key, selected=m is comparison.measure) for m in known]
    bars = [tag("option", cost.cost.title, value=cost.key) for cost in costs]
    return tag(
        "div",
        tag("label", "quality measure ", tag("select", *options, id="measure")),
        tag("label", "target ", void_tag("input", type="range", id="target", min=0, max=200)),
        *([tag("label", "bars ", tag("select", *bars, id="cost"))] if len(costs) > 1 else []),
        class_="controls needs-js",
    )


def _bar(count: float | None, most: float) -> Html:
    percent = 100 * count / most if count and most else 0
    return tag("svg", tag("rect", width=f"{percent:.2f}%", height="100%"), aria_hidden="true")


def _format_needed(run: PageRun, cost: PageCost, count: float | None) -> str:
    if count is None:
        return "not reached" if None not in cost.values(run) else "–"
    return format_size(count)
