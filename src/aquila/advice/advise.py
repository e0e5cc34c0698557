"""Chooses a method for a situation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aquila.advice.candidate import Candidate, find_candidates
from aquila.advice.downlink import CodedChoice, Downlink, coded_downlink, relayed_downlink
from aquila.advice.expectation import Calculator, Expectation
from aquila.advice.facts import Facts, read_facts
from aquila.advice.match import Sureness, find_matches
from aquila.advice.situation import Situation

EQUALLY_FAST = 1.05
"""Methods whose time differs by less count as equally fast."""


@dataclass(frozen=True)
class Trial:
    """What a short run of a method on the user's problem measured.

    Args:
        spec: The method as the command line takes it.
        rounds: Rounds of the run.
        up: Uplink bytes per parameter, device and round, in the second half of the run.
        down: Downlink bytes, likewise.
        alpha: Step size of the run.
        quality: Accuracy at the end, or 1 / perplexity; None if the run diverged.
    """

    spec: str
    rounds: int
    up: float
    down: float
    alpha: float
    quality: float | None


@dataclass(frozen=True)
class Advice:
    """A method for a situation.

    Args:
        situation: The question.
        choice: The method to use.
        runner_up: The next best method, None if there is no other.
        dense: What dense uploads would cost.
        sureness: How sure the advice is.
        coded_downlink: Coded models that could be used, None if there are none.
        relayed: How the server could pass uploads on, None if it cannot.
        relayed_down: Downlink bytes per device if it does so.
        fits: Whether the choice is within the limits of the situation.
        trials: What short runs measured, empty without them.
    """

    situation: Situation
    choice: Candidate
    runner_up: Candidate | None
    dense: Expectation
    sureness: Sureness
    fits: bool
    coded_downlink: CodedChoice | None = None
    relayed: Downlink | None = None
    relayed_down: float | None = None
    trials: tuple[Trial, ...] = ()

    @property
    def alpha(self) -> float | None:
        """The step size to use: the tried one, or one that follows from the comparison."""
        result, study = self.choice.result, self.choice.match.study
        for trial in self.trials:
            if trial.spec == result.spec:
                return trial.alpha
        if self.situation.alpha is not None:
            return float(f"{self.situation.alpha * result.alpha_factor:.3g}")
        return result.alpha if self.situation.model == study.model else None


def advise(situation: Situation, facts: Facts | None = None) -> Advice:
    """Return which method to use, and what to expect.

    Of the methods within the limits that keep the quality of dense uploads, it takes the fastest
    one on the links. Among equally fast ones, and without links, it takes the one with the fewest
    uplink bytes. If none keeps the quality, it takes the best quality within the limits.

    Args:
        situation: The model, the fleet and the limits.
        facts: Results to use instead of those of the package.
    """
    facts = facts or read_facts()
    matches, calculator = find_matches(situation, facts), Calculator(situation)
    candidates = find_candidates(situation, matches, facts, calculator)
    found = choose(situation, candidates, calculator.dense())
    result = found.choice.result
    relayed = relayed_downlink(result, situation, facts)
    return replace(
        found,
        coded_downlink=coded_downlink(situation, facts),
        relayed=relayed,
        relayed_down=calculator.expect(result.up, relayed.down).down if relayed else None,
    )


def choose(situation: Situation, candidates: Sequence[Candidate], dense: Expectation) -> Advice:
    """Return the advice from these candidates."""
    choice = _best(situation, candidates)
    others = [one for one in candidates if one.result.spec != choice.result.spec]
    runner_up = _best(situation, others) if others else None
    sureness = choice.match.sureness
    if choice.downlink.error and not choice.downlink.relays and sureness == "high":
        sureness = "medium"  # coded models were measured on other tasks
    fits = choice.expected.fits(situation)
    return Advice(situation, choice, runner_up, dense, sureness, fits)


def _best(situation: Situation, candidates: Sequence[Candidate]) -> Candidate:
    fitting = [one for one in candidates if one.expected.fits(situation)]
    keeping = [one for one in fitting if one.keeps_quality(situation)]
    if keeping:
        return _cheapest(keeping)
    if fitting:
        best = max(one.gap for one in fitting)
        return _cheapest([o for o in fitting if o.gap >= best - situation.tolerance / 100])
    keeping = [one for one in candidates if one.keeps_quality(situation)] or list(candidates)
    by_limit = _megabytes if situation.max_hours is None else _seconds
    return min(keeping, key=by_limit)


def _cheapest(candidates: Sequence[Candidate]) -> Candidate:
    """Return the fastest candidate; of equally fast ones, the one with the fewest uplink bytes."""
    limit = EQUALLY_FAST * min(map(_seconds, candidates))
    fast = [one for one in candidates if _seconds(one) <= limit]
    return min(fast, key=lambda one: (one.expected.up, not one.downlink.relays, one.downlink.error))


def _seconds(candidate: Candidate) -> float:
    return candidate.expected.seconds or 0.0


def _megabytes(candidate: Candidate) -> float:
    return candidate.expected.megabytes
