"""The methods to choose from in a situation, with their expected cost and quality."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aquila.advice.downlink import Downlink, downlinks
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
        downlink: How the server sends models.
        gap: Expected quality minus that of dense uploads.
        expected: Expected cost.
    """

    match: Match
    result: MethodResult
    downlink: Downlink
    gap: float
    expected: Expectation

    def keeps_quality(self, situation: Situation) -> bool:
        """Return whether the quality is that of dense uploads, within the tolerance."""
        return self.gap >= -situation.tolerance / 100


def find_candidates(
    situation: Situation, matches: Sequence[Match], facts: Facts, calculator: Calculator
) -> list[Candidate]:
    """Return all methods of the comparisons that fit, each with all ways to send models."""
    nearest: dict[str, tuple[Match, MethodResult]] = {}
    for match in matches:
        for result in match.study.runs:
            if result.method in METHODS:
                scaled = replace(result, up=_scaled_up(result, match, situation))
                nearest.setdefault(result.spec, (match, scaled))
    found = []
    for match, result in nearest.values():
        if situation.network is None and needs_links(METHODS[result.method]().server):
            continue
        gap = _worst_gap(result, matches)
        for downlink in downlinks(result, situation, facts):
            measured = _measured_costs(result, situation, match) if downlink.is_whole else None
            expected = calculator.expect(result.up, downlink.down, measured)
            found.append(Candidate(match, result, downlink, gap, expected))
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
