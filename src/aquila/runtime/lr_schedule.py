"""Schedules of learning rates: a factor on the rate per round.

A schedule is a text or a function. Its text joins terms by `+`, and their factors are multiplied.
Each kind of term may occur once, and `cosine` and `linear` are one kind:

    constant            1
    warmup:5            (k + 1) / 5 in the first 5 rounds
    cosine              from 1 to 0 along half a cosine, over the rounds of the run
    linear              from 1 to 0 along a line, over the rounds of the run
    steps:60,120        0.1 from round 60 on, 0.01 from round 120 on
    steps:60,120:0.5    the same with another factor

`cosine` and `linear` start after the warm-up. `cosine:200` fixes the number of rounds. Importing
this module does not import torch.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from aquila.core.function_name import function_name

Schedule = str | Callable[[int], float]
"""The text of a schedule, or a function round -> factor."""

STEP_FACTOR = 0.1
"""Default factor of each round listed in `steps`."""

SYNTAX = (
    "constant, cosine, linear, steps:60,120 or warmup:5, joined by +, such as warmup:5+cosine, or "
    "in Python a function round -> factor"
)


class ScheduleError(ValueError):
    """A text that is not a schedule."""


@dataclass(frozen=True)
class LrSchedule:
    """A schedule as numbers. `decay` is `constant`, `cosine` or `linear`.

    Args:
        warmup: Rounds of the warm-up.
        decay: Name of the decay over `rounds`.
        rounds: Round in which the decay reaches zero; 0 means that it is not known yet.
        milestones: Rounds from which on the rate is multiplied by `step_factor`.
        step_factor: Factor per milestone.
    """

    warmup: int = 0
    decay: str = "constant"
    rounds: int = 0
    milestones: tuple[int, ...] = ()
    step_factor: float = STEP_FACTOR

    def __call__(self, round_number: int) -> float:
        """Return the factor of a round. After its last round, a decay keeps its last factor."""
        if round_number < self.warmup:
            factor = (round_number + 1) / self.warmup
        else:
            factor = self._decay_factor(round_number)
        passed = sum(milestone <= round_number for milestone in self.milestones)
        return factor * self.step_factor**passed

    def _decay_factor(self, round_number: int) -> float:
        if self.decay == "constant":
            return 1.0
        length = max(1, self.rounds - self.warmup)
        progress = min(round_number - self.warmup, length - 1) / length
        return (1 + math.cos(math.pi * progress)) / 2 if self.decay == "cosine" else 1 - progress

    def __str__(self) -> str:
        warmup = f"warmup:{self.warmup}" if self.warmup else ""
        rounds = f":{self.rounds}" if self.rounds else ""
        decay = "" if self.decay == "constant" else f"{self.decay}{rounds}"
        factor = "" if self.step_factor == STEP_FACTOR else f":{self.step_factor!r}"
        steps = f"steps:{','.join(map(str, self.milestones))}{factor}" if self.milestones else ""
        return "+".join(filter(None, (warmup, decay, steps))) or "constant"


def parse_schedule(text: str) -> LrSchedule:
    """Return the schedule of a text; ScheduleError says what is allowed."""
    fields: dict[str, Any] = {}
    for term in text.split("+"):
        name, _, argument = term.strip().partition(":")
        try:
            read = _read_term(name, argument)
        except ValueError:
            raise ScheduleError(f"{text!r} is not a schedule; allowed: {SYNTAX}") from None
        if fields.keys() & read.keys():
            raise ScheduleError(f"{text!r} has two terms of one kind; give one decay at most")
        fields |= read
    return LrSchedule(**fields)


def resolve_schedule(schedule: Schedule, rounds: int) -> Schedule:
    """Return the schedule with the number of rounds filled in where its decay needs it."""
    if callable(schedule):
        return schedule
    parsed = parse_schedule(schedule)
    if parsed.decay == "constant" or parsed.rounds:
        return schedule
    return str(replace(parsed, rounds=max(1, rounds)))


def schedule_function(schedule: Schedule) -> Callable[[int], float]:
    """Return the function round -> factor of a schedule.

    ScheduleError if its decay needs the number of rounds and no one has filled it in.
    """
    if callable(schedule):
        return lambda round_number: _checked_factor(schedule, round_number)
    parsed = parse_schedule(schedule)
    if parsed.decay != "constant" and not parsed.rounds:
        raise ScheduleError(
            f"the schedule {schedule!r} needs the number of rounds, such as {parsed.decay}:200"
        )
    return parsed


def schedule_name(schedule: Schedule) -> str:
    """Return text that identifies a schedule, the qualified name of a function."""
    return function_name(schedule) if callable(schedule) else schedule


def _read_term(name: str, argument: str) -> dict[str, Any]:
    """Return the fields of one term; ValueError if it is none."""
    if name == "constant" and not argument:
        return {}
    if name in ("cosine", "linear"):
        return {"decay": name, "rounds": _positive(argument) if argument else 0}
    if name == "warmup":
        return {"warmup": _positive(argument)}
    if name == "steps":
        rounds, _, factor = argument.partition(":")
        milestones = tuple(_positive(number) for number in rounds.split(","))
        return {"milestones": milestones, "step_factor": _factor(factor or STEP_FACTOR)}
    raise ValueError(name)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _factor(text: str | float) -> float:
    factor = float(text)
    if not 0 < factor < math.inf:
        raise ValueError(text)
    return factor


def _checked_factor(schedule: Callable[[int], float], round_number: int) -> float:
    given: Any = schedule(round_number)
    try:
        factor = float(given)
    except (TypeError, ValueError):
        factor = math.nan
    if not 0 < factor < math.inf:
        raise ScheduleError(
            f"the schedule returned {given!r} for round {round_number}; a factor must be above 0"
        )
    return factor
