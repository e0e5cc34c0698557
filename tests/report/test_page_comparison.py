"""Bytes to the same quality: the target, the baseline and the headline."""

import pytest

from aquila.report.page import read_runs, render
from aquila.report.page.comparison import bytes_to_target, common_target, compare
from aquila.report.page.costs import available_costs
from aquila.report.page.format import format_bytes
from aquila.report.page.measures import ACCURACY, LOSS, available_measures
from aquila.report.page.summary import summary_sentence
from helpers.run_folders import improving_record, write_comparison, write_run


@pytest.fixture
def runs(tmp_path):
    return read_runs([write_comparison(tmp_path / "runs")]).runs


def test_bytes_count_up_to_the_first_round_at_the_target(runs):
    own = runs[0]
    accuracies = ACCURACY.values(own)
    assert bytes_to_target(own, ACCURACY, accuracies[3]) == own.cumulative_uplink[3]
    assert bytes_to_target(own, ACCURACY, accuracies[0] / 2) == own.cumulative_uplink[0]
    assert bytes_to_target(own, ACCURACY, 0.9999) is None
    assert bytes_to_target(own, LOSS, LOSS.values(own)[5]) == own.cumulative_uplink[5]


def test_time_and_energy_to_the_target(tmp_path):
    write_run(tmp_path / "a", "aquila", seconds=1800.0, joules=2.0, late=0)
    write_run(tmp_path / "b", "fedsgd", level=32, seconds=3600.0, joules=500.0, late=0)
    found = read_runs([tmp_path]).runs
    _, both, time, energy = available_costs(found)
    assert [cost.label for cost in (both, time, energy)] == [
        "uplink + downlink", "simulated time, h", "energy, kJ",
    ]  # fmt: skip
    accuracies = ACCURACY.values(found[0])
    assert time.to_target(found[0], ACCURACY, accuracies[3]) == 4 * 1800
    assert energy.to_target(found[0], ACCURACY, accuracies[3]) == 8
    assert time.to_target(found[0], ACCURACY, 0.9999) is None
    text = render(read_runs([tmp_path]))
    assert "Simulated time: 5.50\u00a0h (aquila), 11.0\u00a0h (fedsgd)." in text


def test_runs_without_a_link_model_cost_bytes(runs):
    assert [cost.key for cost in available_costs(runs)] == ["bytes", "both"]


def test_half_of_the_runs_reach_the_target(tmp_path):
    for number, best in enumerate((0.1, 0.8, 0.9)):
        write_run(
            tmp_path / f"run{number}", f"m{number}", metrics={"test_accuracy": best}, loss=best
        )
    runs = read_runs([tmp_path]).runs
    assert common_target(ACCURACY, runs) == 0.792
    assert common_target(LOSS, runs) == 0.84


def test_aquila_is_compared_with_the_run_of_largest_uplink(runs):
    found = compare(runs)
    assert (found.lead.label, found.baseline.label) == ("aquila", "fedsgd")
    assert found.cheapest is found.lead
    ratio = found.needed_bytes["fedsgd"] / found.needed_bytes["aquila"]
    sentence = summary_sentence(runs, found)
    assert sentence.startswith("aquila reaches 91.5% test accuracy with ")
    needed = format_bytes(found.needed_bytes["fedsgd"])
    assert needed.endswith("\u00a0MB")
    assert sentence.endswith(f"fedsgd needs {needed}, {ratio:.1f} times as much.")


def test_cheapest_run_leads_if_aquila_sends_most(tmp_path):
    write_run(tmp_path / "a", "aquila", level=9)
    write_run(tmp_path / "b", "laq", level=3)
    found = compare(read_runs([tmp_path]).runs)
    assert (found.lead.label, found.baseline.label) == ("laq", "aquila")


def test_run_that_misses_the_target_is_not_the_baseline(tmp_path):
    for name, level, accuracy in (("aquila", 4, 0.9), ("qsgd", 6, 0.9), ("fedsgd", 32, 0.1)):
        write_run(tmp_path / name, name, level=level, metrics={"test_accuracy": accuracy})
    found = compare(read_runs([tmp_path]).runs)
    assert found.baseline.label == "qsgd"
    assert found.needed_bytes["fedsgd"] is None


def test_only_runs_of_one_problem_are_compared(tmp_path):
    for name, level in {"aquila": 4, "qsgd": 6}.items():
        write_run(tmp_path / name, name, level=level)
    write_run(tmp_path / "other", "fedsgd", level=32, facts={"data": "cifar10"})
    runs = read_runs([tmp_path]).runs
    found = compare(runs)
    assert [run.label for run in found.runs] == ["aquila", "qsgd"]
    assert found.baseline.label == "qsgd"
    assert set(found.needed_bytes) == {"aquila", "qsgd", "fedsgd"}


def test_aquila_that_misses_the_target_does_not_lead(tmp_path):
    write_run(tmp_path / "late", "aquila", metrics={})
    write_run(tmp_path / "early", "qsgd", level=5, loss=0.001, metrics={})
    write_run(tmp_path / "cheap", "laq", level=2, loss=0.001, metrics={})
    runs = read_runs([tmp_path]).runs
    found = compare(runs)
    assert found.lead.label == "laq"
    assert found.needed_bytes["aquila"] is None


@pytest.mark.parametrize("loss", [-3.0, 0.0, 1e-300])
def test_unusual_losses_have_a_target(tmp_path, loss):
    runs = read_runs([write_run(tmp_path / "run", loss=loss, metrics={})]).runs
    found = compare(runs)
    assert found.needed_bytes["aquila"] == runs[0].cumulative_uplink[0]


def test_single_run_has_a_headline(tmp_path):
    runs = read_runs([write_run(tmp_path / "run")]).runs
    assert summary_sentence(runs, compare(runs)).endswith("KB of uplink.")


def test_measures_are_ordered_perplexity_accuracy_loss(tmp_path):
    metrics = {"perplexity": 20.0, "test_accuracy": 0.5}
    runs = read_runs([write_run(tmp_path / "run", metrics=metrics)]).runs
    assert [m.key for m in available_measures(runs)] == ["perplexity", "test_accuracy", "loss"]
    assert "a perplexity of 21 " in summary_sentence(runs, compare(runs))


def test_nan_does_not_count_as_a_value(tmp_path):
    (run,) = read_runs([write_run(tmp_path / "run")]).runs
    spoilt = type(run)(run.label, run.folder, [improving_record(0, loss=float("nan"))], {}, [])
    assert LOSS.values(spoilt) == [None]
    assert LOSS.best(spoilt) is None
