"""The top of a report: the headline, a description and warnings."""

from collections.abc import Sequence

from aquila.report.costs import SIMULATED_COSTS
from aquila.report.page.comparison import Comparison
from aquila.report.page.costs import available_costs
from aquila.report.page.format import format_bytes, format_ratio
from aquila.report.page.html import Html, tag
from aquila.report.page.protection import protection_notes
from aquila.report.page.reader import PageRuns
from aquila.report.page.runs import PageRun
from aquila.report.page.settings import common_facts, format_setting, problem_differences

SEEDS_NOTE = "Runs that differ only in the seed are one line, their mean. A band spans the seeds."
OBJECTIVES = {
    "uniform": "objective: mean loss over the devices",
    "samples": "objective: mean loss over all samples",
}
"""What a run minimises, by its setting `weights`."""


def page_header(found: PageRuns, comparison: Comparison | None, *parts: Html) -> Html:
    """Return headline, description, warnings and further parts."""
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
        tag("p", _eyebrow(runs), class_="eyebrow"),
        tag("h1", summary_sentence(runs, comparison)),
        tag("p", _second_sentence(comparison), class_="subtitle"),
        tag("p", description(comparison.runs if comparison else runs), class_="description"),
        *([tag("p", SEEDS_NOTE, class_="description")] if any(r.members for r in runs) else []),
        *(tag("p", note, class_="note", role="note") for note in notes),
        *parts,
    )  # fmt: skip


def _eyebrow(runs: Sequence[PageRun]) -> str:
    count = sum(len(run.repetitions) for run in runs)
    parts = ["AQUILA", f"report of {count} run{'s' * (count > 1)}"]
    dates = sorted(run.started for r in runs for run in r.repetitions if run.started)
    return " · ".join([*parts, *(f"{date:%d %B %Y}" for date in dates[-1:])])


def summary_sentence(runs: Sequence[PageRun], comparison: Comparison | None) -> str:
    """Return the headline."""
    if comparison is None:
        sent = sum(run.result.uplink_bytes for run in runs)
        return (
            f"{sum(len(run.records) for run in runs)} rounds used {format_bytes(sent)} of uplink."
        )
    lead, baseline, needed = comparison.lead, comparison.baseline, comparison.needed_bytes
    goal = f"{comparison.measure.format_value(comparison.target)} {comparison.measure.title}"
    if not comparison.measure.higher_is_better:
        goal = (
            f"a {comparison.measure.title} of {comparison.measure.format_value(comparison.target)}"
        )
    first = needed[lead.label] or 0
    sentence = f"{lead.label} reaches {goal} with {format_bytes(first)} of uplink"
    if lead is baseline:
        return f"{sentence}."
    other = needed[baseline.label] or 0
    if other <= first:
        return f"{sentence}; {baseline.label} needs only {format_bytes(other)}."
    ratio = format_ratio(other / max(first, 1))
    return f"{sentence}; {baseline.label} needs {format_bytes(other)}, {ratio} times as much."


def description(runs: Sequence[PageRun]) -> str:
    """Return one line with the main settings that all runs share."""
    facts = common_facts(runs)
    templates = {
        "data": "{}", "model": "{}", "dimension": "{} parameters", "devices": "{} devices",
        "split": "split {}",
        "rounds": "{} rounds", "seed": "seed {}",
    }  # fmt: skip
    parts = [
        form.format(format_setting(name, facts[name]))
        for name, form in templates.items()
        if name in facts
    ]
    weights = facts.get("weights")
    if isinstance(weights, str) and weights in OBJECTIVES:
        parts.append(OBJECTIVES[weights])
    return ", ".join(parts) or "The run folders do not record the settings."


def _second_sentence(comparison: Comparison | None) -> str:
    if comparison is None:
        return ""
    sentences = []
    if comparison.cheapest is not comparison.lead:
        count = comparison.needed_bytes[comparison.cheapest.label] or 0
        sentences.append(f"Cheapest: {comparison.cheapest.label} with {format_bytes(count)}.")
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
    for cost in available_costs(comparison.runs):
        if cost.cost not in SIMULATED_COSTS:
            continue
        needed = [
            cost.to_target(by_label[label], comparison.measure, comparison.target) for label in runs
        ]
        if None not in needed:
            parts = [
                f"{cost.format(number)} ({label})"
                for label, number in zip(runs, needed, strict=True)
            ]
            sentences.append(f"{cost.cost.title.capitalize()}: {', '.join(parts)}.")
    return sentences
