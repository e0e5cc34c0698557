"""The methods to choose from in a situation, with their expected cost and quality."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aquila.advice.expectation import Calculator, Expectation
from aquila.advice.facts import Facts, MethodResult
from aquila.advice.match import Match
from aquila.advice.situation import Situation
from aquila.core.method import needs_links
from aquila.methods import METHODS

HEADER_BYTES = 33
"""Length of the header of a reply without scalars."""


@dataclass(frozen=True)
class Candidate:
    """A method that may be advised.

    Args:
        match: The comparison that has the method and is most like the situation.
        result: The method in this comparison.
        downlink_error: Error of coded models on the downlink, 0 for whole models.
        gap: Expected quality minus that of dense uploads.
        expected: Expected cost.
    """

    match: Match
    result: MethodResult
    downlink_error: float
    gap: float
    expected: Expectation

    def keeps_quality(self, situation: Situation) -> bool:
        """Return whether the quality is that of dense uploads, within the tolerance."""
        return self.gap >= -situation.tolerance / 100


@dataclass(frozen=True)
class DownlinkChoice:
    """The coded downlink to advise: its error, and its bytes compared with whole models."""

    downlink_error: float
    ratio: float


def coded_downlink(situation: Situation, facts: Facts) -> DownlinkChoice | None:
    """Return the coded downlink with the largest error that kept the quality in all results.

    Its ratio is the worst one. It needs devices that take part in all rounds.
    """
    if situation.participation < 1:
        return None
    errors = {one.downlink_error for one in facts.coded_downlink}
    allowed = []
    for error in sorted(errors):
        results = [one for one in facts.coded_downlink if one.downlink_error == error]
        if situation.downlink_error not in (0, error):
            continue
        if min(one.gap for one in results) >= -situation.tolerance / 100:
            allowed.append(DownlinkChoice(error, max(one.ratio for one in results)))
    return allowed[-1] if allowed else None


def find_candidates(
    situation: Situation, matches: Sequence[Match], facts: Facts, calculator: Calculator
) -> list[Candidate]:
    """Return all methods of the comparisons that fit, each with whole and with coded models."""
    nearest: dict[str, tuple[Match, MethodResult]] = {}
    for match in matches:
        for result in match.study.runs:
            if result.method in METHODS:
                scaled = replace(result, up=_scaled_up(result, match, situation))
                nearest.setdefault(result.spec, (match, scaled))
    coded = coded_downlink(situation, facts)
    found = []
    for match, result in nearest.values():
        if situation.network is None and needs_links(METHODS[result.method]().server):
            continue
        gap = _worst_gap(result, matches)
        if situation.downlink_error == 0 or coded is None:
            measured = _measured_costs(result, situation, match)
            expected = calculator.expect(result.up, result.down, measured)
            found.append(Candidate(match, result, 0.0, gap, expected))
        if coded is not None:
            smaller = replace(result, down=result.down * coded.ratio)
            expected = calculator.expect(smaller.up, smaller.down)
            found.append(Candidate(match, smaller, coded.downlink_error, gap, expected))
    return found


def _scaled_up(result: MethodResult, match: Match, situation: Situation) -> float:
    """Return the uplink bytes per parameter for the model of the situation.

    The header of a frame has the same length for all models.
    """
    body = max(0.0, result.up - HEADER_BYTES / match.study.parameters)
    return body + HEADER_BYTES / situation.parameters


def _worst_gap(result: MethodResult, matches: Sequence[Match]) -> float:
    """Return the worst gap of a method in the comparisons.

    If the one that is most like the situation ran only variants of the method, they count too.
    """
    nearest = matches[0].study
    found = [match.study.find(result.spec) for match in matches]
    if nearest.find(result.spec) is None:
        found += [one for one in nearest.runs if one.method == result.method]
    return min(one.gap for one in found if one is not None)


def _measured_costs(
    result: MethodResult, situation: Situation, match: Match
) -> tuple[float, float] | None:
    """Return seconds and joules of the comparison, if it has the same model, fleet and link."""
    network, study = situation.network, match.study
    same = (
        network is not None
        and result.links is not None
        and network.compute_time == 0
        and network.fading == "none"
        and network.access == "orthogonal"
        and situation.participation == 1
        and (situation.parameters, situation.devices) == (study.parameters, study.devices)
    )
    if not same or network is None or result.links is None:
        return None
    return result.links.get(network.model.name)
