"""Advice as sentences for readers."""

from collections.abc import Iterator, Sequence

from aquila.advice.advise import Advice
from aquila.advice.candidate import Candidate
from aquila.advice.expectation import DENSE_BYTES, Expectation
from aquila.advice.facts import MethodResult, Study
from aquila.report.costs import ENERGY, TIME
from aquila.report.page.format import format_ratio
from aquila.report.units import format_bytes

REASONS = {
    "high": "a committed comparison has the same model and split",
    "medium": "the comparison is similar, but not the same",
    "low": "no comparison is similar, so this is arithmetic only",
}
HEADINGS = ("", "up per device", "down per device", "up in all", "time", "energy")
LARGE_DOWNLINK = 10
"""Ratio of downlink to uplink from which on there is a hint."""
DENSE_ROW = "dense uploads"


def describe(advice: Advice) -> Iterator[str]:
    """Yield the paragraphs of the advice. Lines that begin with a space are rows of a table."""
    yield f"For {advice.situation.describe()}:"
    yield f"Take {advice.choice.result.spec} with {_step_size(advice)}{_sends(advice.choice)}."
    yield from _without_compression(advice)
    yield from cost_table(advice)
    yield from _limits(advice)
    yield from _downlink(advice)
    yield f"Why: {_reason(advice)}"
    yield f"Arithmetic: {_arithmetic(advice)}"
    if advice.trials:
        yield f"Measured: {_measured(advice)}"
    yield f"How sure: {advice.sureness}; {_why_sure(advice)}."
    if advice.runner_up is not None:
        other = advice.runner_up
        yield (
            f"Runner-up: {other.result.spec}{_runner_up_downlink(other)}; expect it "
            f"{_expected_quality(other)}."
        )


def _without_compression(advice: Advice) -> Iterator[str]:
    """Yield the next best method if only dense uploads keep the quality."""
    choice, other = advice.choice, advice.runner_up
    is_dense = choice.result.method == choice.match.study.dense
    if is_dense and other is not None and not other.keeps_quality(advice.situation):
        yield (
            f"No compressed method kept the quality in the comparison. The next best is "
            f"{other.result.spec}, {_expected_quality(other)}; a larger tolerance accepts it."
        )


def cost_table(advice: Advice) -> Iterator[str]:
    """Yield the lines of a table with the costs of the choice, the runner-up and dense uploads."""
    shown = [(one.result.spec, one.expected) for one in (advice.choice, advice.runner_up) if one]
    rows = [HEADINGS, *((name, *_costs(cost)) for name, cost in shown)]
    rows.append((DENSE_ROW, *_costs(advice.dense)))
    columns = list(zip(*rows, strict=True))
    if advice.situation.network is None:
        columns = columns[:4]
    yield from _aligned(columns)


def _aligned(columns: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in columns]
    for first, *rest in zip(*columns, strict=True):
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        yield "   ".join([f"  {first:<{widths[0]}}", *cells])


def _costs(expected: Expectation) -> tuple[str, ...]:
    return (
        format_bytes(expected.up),
        format_bytes(expected.down),
        format_bytes(expected.up * expected.devices),
        TIME.format_total(expected.seconds or 0),
        ENERGY.format_total(expected.joules or 0),
    )


def _sends(candidate: Candidate) -> str:
    error, relays = candidate.downlink.error, candidate.downlink.relays
    coded = f"downlink_error={error:g}" if error else ""
    if relays:
        return ", and pass uploads on, relay_uploads=true" + (f" with {coded}" if coded else "")
    return f", and send models as coded differences, {coded}" if coded else ""


def _runner_up_downlink(candidate: Candidate) -> str:
    if candidate.downlink.relays:
        return ", also with relayed uploads"
    return ", also with coded differences" if candidate.downlink.error else ""


def _step_size(advice: Advice) -> str:
    if advice.alpha is not None:
        return f"step size alpha={advice.alpha:g}"
    times = advice.choice.result.alpha_factor
    factor = "" if times == 1 else f"{times:.2g} times "
    return f"{factor}the step size of dense uploads"


def _limits(advice: Advice) -> Iterator[str]:
    situation, expected = advice.situation, advice.choice.expected
    used = {}
    if situation.max_mb is not None:
        used[f"{situation.max_mb:g} MB per device"] = expected.megabytes / situation.max_mb
    if situation.max_hours is not None and expected.seconds is not None:
        used[f"{situation.max_hours:g} h"] = expected.seconds / (3600 * situation.max_hours)
    if not used:
        return
    if advice.fits:
        shares = " and ".join(f"{share:.0%} of {limit}" for limit, share in used.items())
        yield f"Limits: it takes {shares}."
        return
    limit = max(used, key=lambda name: used[name])
    rounds = int(situation.rounds / used[limit])
    shorter = f"{rounds:,} rounds would fit" if rounds else "not even one round does"
    yield f"Limits: no method fits {situation.rounds:,} rounds in {limit}; {shorter}."


def _downlink(advice: Advice) -> Iterator[str]:
    """Yield a hint if the downlink is large and can be made smaller."""
    choice, coded, relayed = advice.choice, advice.coded_downlink, advice.relayed
    expected, hints = choice.expected, []
    is_large = choice.downlink.is_whole and expected.down > LARGE_DOWNLINK * expected.up
    if coded is not None and is_large and advice.situation.network is None:
        hints.append(
            f"if its bytes matter too, add downlink_error={coded.error:g}; it then takes about "
            f"{format_bytes(coded.ratio * expected.down)} per device."
        )
    if relayed and advice.relayed_down and advice.relayed_down < expected.down / 2:
        options = "relay_uploads=true"
        options += f" and downlink_error={relayed.error:g}" if relayed.error else ""
        hints.append(
            f"if devices may see each other's uploads, add {options}; it then takes about "
            f"{format_bytes(advice.relayed_down)} per device."
        )
    if hints:
        yield "Downlink: " + " Or ".join(hints)


def _reason(advice: Advice) -> str:
    choice, study = advice.choice, advice.choice.match.study
    result = study.find(choice.result.spec) or choice.result
    seeds = "one seed" if result.seeds == 1 else f"{result.seeds} seeds"
    text = (
        f"in {study.source} ({study.model} on {study.task}, split {study.split}, {study.devices} "
        f"devices, {study.rounds} rounds, {seeds}) it ended at {result.quality:.1%}, dense uploads "
        f"at {study.dense_quality:.1%}."
    )
    text += _speed(study, result)
    if not choice.keeps_quality(advice.situation):
        when = "After the short run it was" if advice.trials else "Expect it"
        text += f" {when} {_expected_quality(choice)}; nothing within the limits is better."
    elif choice.gap < result.gap - 1e-9:
        text += f" In the other comparisons it was at worst {_expected_quality(choice)}."
    if choice.result.up > 0.9 * DENSE_BYTES:
        text += " No compressed method kept the quality."
    return text


def _speed(study: Study, result: MethodResult) -> str:
    """Return a sentence about the rounds to a quality, if the comparison measured them."""
    dense = study.find(study.dense)
    if study.level is None or dense is None or not dense.rounds_to_quality:
        return ""
    if result.rounds_to_quality is None:
        return f" It did not always reach {study.level:.0%} of the dense quality."
    return (
        f" It reached {study.level:.0%} of the dense quality after {result.rounds_to_quality:.0f} "
        f"rounds, dense uploads after {dense.rounds_to_quality:.0f}."
    )


def _arithmetic(advice: Advice) -> str:
    result, situation = advice.choice.result, advice.situation
    down = advice.choice.downlink.down
    turns = situation.rounds * situation.participation
    fewer = format_ratio(advice.dense.up / advice.choice.expected.up)
    return (
        f"{result.up:.2g} bytes up and {down:.2g} down per parameter and round, times "
        f"{situation.parameters:,} parameters, times {turns:,.0f} rounds. Dense uploads take "
        f"{DENSE_BYTES:.0f} and {DENSE_BYTES:.0f} bytes: {fewer} times as many up."
    )


def _measured(advice: Advice) -> str:
    shown = ", ".join(
        f"{trial.spec} {'diverged' if trial.quality is None else format(trial.quality, '.1%')}"
        for trial in advice.trials
    )
    return (
        f"{shown} after {advice.trials[0].rounds} rounds on your problem. The table has the "
        "measured bytes."
    )


def _why_sure(advice: Advice) -> str:
    match = advice.choice.match
    if advice.trials:
        return "short runs on your problem corrected the expectations"
    downlink = advice.choice.downlink
    if downlink.error and not downlink.relays and match.sureness == "high":
        return "the comparison has the same model and split, but without coded differences"
    listed = f": {', '.join(match.differences)}" if match.differences else ""
    return REASONS[advice.sureness] + listed


def _expected_quality(candidate: Candidate) -> str:
    behind = -100 * candidate.gap
    return f"{behind:.1f} points below dense" if behind > 0.05 else "as good as dense"
