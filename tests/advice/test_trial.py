"""Short runs correct advice: measured bytes, quality that lags, runs that diverge."""

from dataclasses import replace

import pytest

from aquila.advice.advise import advise
from aquila.advice.situation import Situation
from aquila.advice.trial import try_methods
from aquila.sim.experiment import Experiment
from aquila.sim.setting import Setting
from helpers.advice import facts, result, study

SETTING = Setting(split="iid", rounds=12, devices=3, samples=300)
DIGITS = Situation(parameters=9610, model="mlp", data="digits", devices=3, rounds=12)


def advice_for(*runs):
    known = study("mlp", task="digits", parameters=9610, runs=runs, dense="fedavg")
    return advise(DIGITS, facts(known))


def test_measured_bytes_replace_the_expected_ones():
    started = []
    advice = advice_for(result("eden", 0.0, 0.5), result("qsgd", 0.0, 1.0))
    tried = try_methods(
        advice, Experiment(SETTING), rounds=6, on_start=lambda *run: started.append(run)
    )
    assert started == [("fedsgd", 6), ("eden", 6), ("qsgd", 6)]  # dense with one gradient per round
    assert tried.choice.result.spec == "eden"
    assert tried.choice.result.up == pytest.approx(1 / 8, rel=0.05)
    assert tried.choice.expected.up == pytest.approx(12 * 9610 / 8, rel=0.05)
    assert [trial.rounds for trial in tried.trials] == [6, 6, 6]
    assert tried.sureness == "high"


def test_method_that_lags_is_not_advised():
    slow = result("signsgd", 0.0, 0.001, alpha_factor=1e-6)
    tried = try_methods(advice_for(slow, result("qsgd", 0.0, 1.0)), Experiment(SETTING))
    assert tried.choice.result.spec == "qsgd"
    assert tried.trials[0].rounds == 3  # a quarter of the training


def test_trial_without_a_good_method_makes_nothing_surer():
    slow = result("signsgd", 0.0, 0.001, alpha_factor=1e-6)
    advice = advice_for(slow)
    limited = replace(advice, situation=replace(DIGITS, max_mb=0.6))
    tried = try_methods(limited, Experiment(SETTING))
    assert tried.choice.result.spec == "signsgd"  # dense uploads are over the limit
    assert not tried.choice.keeps_quality(DIGITS)
    assert tried.sureness == advice.sureness == "medium"


def test_method_that_diverges_is_not_advised():
    wild = result("laq", 0.0, 0.001, alpha_factor=1e9)
    tried = try_methods(advice_for(wild), Experiment(SETTING), rounds=12)
    found = {trial.spec: trial for trial in tried.trials}
    assert found["laq"].quality is None or found["laq"].quality < 0.5
    assert tried.choice.result.up == pytest.approx(4, rel=0.01)
