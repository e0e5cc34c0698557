"""Short runs on the user's own problem that correct the expectations."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from aquila.advice.advise import Advice, Trial, choose
from aquila.advice.candidate import Candidate
from aquila.advice.downlink import Downlink, relayed_bytes
from aquila.advice.expectation import DENSE_BYTES, Calculator
from aquila.advice.facts import MethodResult
from aquila.advice.match import LEVELS, Sureness
from aquila.core.parameter import check_whole_number
from aquila.methods import METHODS, create
from aquila.report.bytes_to_accuracy import accuracy_curve
from aquila.runtime.nan_guard import NonFiniteError
from aquila.sim.experiment import Experiment
from aquila.sim.problem import Problem
from aquila.sim.records import Record

DENSE_METHODS = {"gradient": "fedsgd", "epochs": "fedavg"}
"""Methods without compression, by the local work of the setting."""
MAX_ROUNDS = 50
LAST_EVALUATIONS = 5
ALLOWANCE = 2.0
"""Points that a method may be behind dense uploads after a short run; some only start slowly."""


def try_methods(
    advice: Advice,
    experiment: Experiment,
    rounds: int = 0,
    on_start: Callable[[str, int], None] | None = None,
) -> Advice:
    """Run the advised methods and dense uploads for some rounds, and correct the advice.

    Measured bytes replace the expected ones. A method that diverges, or that is more than two
    points behind dense uploads, gets the measured quality; otherwise it keeps the expected one,
    because a short run says little about the end of training.

    Args:
        advice: Advice for the setting of the experiment.
        experiment: The setting to run, and parameters of methods.
        rounds: Rounds of each run; 0: a quarter of the training, at most 50.
        on_start: Gets the method and the rounds of each run before it starts.
    """
    check_whole_number("try_rounds", rounds, 0)
    total = advice.situation.rounds
    rounds = min(rounds or min(MAX_ROUNDS, -(-total // 4)), total)
    problem, _ = experiment.setting.problem()
    dense = _dense_candidate(advice, experiment.setting.work)
    candidates = {one.result.spec: one for one in (dense, advice.choice, advice.runner_up) if one}
    trials = {}
    for spec, candidate in candidates.items():
        if on_start is not None:
            on_start(spec, rounds)
        trials[spec] = _run(candidate, experiment, problem, rounds)
    return _correct(advice, list(candidates.values()), trials, trials[dense.result.spec])


def _dense_candidate(advice: Advice, work: str) -> Candidate:
    result = MethodResult(DENSE_METHODS[work], {}, 0.0, 1.0, 0, 0.0, 0.0, DENSE_BYTES, DENSE_BYTES)
    return Candidate(advice.choice.match, result, Downlink(DENSE_BYTES), 0.0, advice.dense)


def _run(candidate: Candidate, experiment: Experiment, problem: Problem, rounds: int) -> Trial:
    setting, result = experiment.setting, candidate.result
    known = METHODS[result.method].parameters
    alpha = float(f"{setting.alpha * result.alpha_factor:.3g}")
    given = {**setting.method_defaults, "alpha": alpha} | experiment.methods.get(result.method, {})
    values = {name: value for name, value in given.items() if name in known}
    options = replace(
        setting.options,
        downlink_error=candidate.downlink.error or setting.options.downlink_error,
        relay_uploads=candidate.downlink.relays,
        evaluate_every=min(setting.options.evaluate_every, -(-rounds // LAST_EVALUATIONS)),
    )
    records: list[Record] = []
    diverged = False
    try:
        problem.train(
            create(result.method, **{**values, **result.options}),
            rounds,
            setting.seed,
            on_record=records.append,
            options=options,
        )
    except NonFiniteError:
        diverged = True
    qualities = accuracy_curve(records).accuracy[-LAST_EVALUATIONS:]
    quality = statistics.fmean(qualities) if qualities and not diverged else None
    late = records[len(records) // 2 :]
    turns = max(1, sum(len(record.uplink) for record in late)) * len(problem.theta0)
    up = sum(record.uplink_bytes for record in late) / turns
    down = sum(record.downlink_bytes for record in late) / turns
    return Trial(result.spec, len(records), up, down, float(str(values["alpha"])), quality)


def _correct(
    advice: Advice, candidates: Sequence[Candidate], trials: Mapping[str, Trial], dense: Trial
) -> Advice:
    """Return the advice with the measured numbers."""
    calculator = Calculator(advice.situation)
    corrected = []
    for candidate in candidates:
        trial = trials[candidate.result.spec]
        result = replace(candidate.result, up=trial.up)
        relayed = relayed_bytes(trial.up, advice.situation)  # with the first model
        down = relayed if candidate.downlink.relays else trial.down
        downlink = replace(candidate.downlink, down=down)
        behind = _points_behind(trial, dense)
        gap = candidate.gap if behind <= ALLOWANCE else min(candidate.gap, -behind / 100)
        expected = calculator.expect(trial.up, down)
        changed = replace(candidate, result=result, downlink=downlink, gap=gap, expected=expected)
        corrected.append(changed)
    again = choose(advice.situation, corrected, advice.dense)
    sureness = advice.sureness
    if again.choice.keeps_quality(advice.situation):
        sureness = _after_trial(sureness, dense.rounds, advice.situation.rounds)
    return replace(
        again,
        sureness=sureness,
        coded_downlink=advice.coded_downlink,
        relayed=advice.relayed,
        relayed_down=advice.relayed_down,
        trials=tuple(trials.values()),
    )


def _points_behind(trial: Trial, dense: Trial) -> float:
    """Return by how many points a method is behind dense uploads."""
    if trial.quality is None:
        return 100.0
    return 0.0 if dense.quality is None else 100 * (dense.quality - trial.quality)


def _after_trial(sureness: Sureness, rounds: int, total: int) -> Sureness:
    """Return the sureness after a trial: one level higher, and high after all rounds."""
    return "high" if rounds == total else LEVELS[min(LEVELS.index(sureness) + 1, 2)]
