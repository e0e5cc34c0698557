"""Bytes to an accuracy, computed by hand."""

import torch

import aquila
from aquila.report.bytes_to_accuracy import AccuracyCurve, CostToTarget, accuracy_curve
from helpers.fake_records import fake_record
from helpers.problems import ridge

CURVE = AccuracyCurve(
    rounds=(2, 4, 6, 8, 10),
    uplink_bytes=(10, 20, 30, 40, 50),
    paper_bits=(100, 200, 300, 400, 500),
    accuracy=(0.9, 0.3, 0.6, 0.6, 0.9),
)


def test_smoothed_accuracy_is_mean_of_three_evaluations():
    assert [round(mean, 9) for mean in CURVE.smoothed_accuracy] == [0.6, 0.5, 0.7]


def test_level_is_reached_by_moving_average_not_by_one_evaluation():
    assert CURVE.cost_to_reach(0.55) == CostToTarget(6, 30, 300)
    assert CURVE.cost_to_reach(0.65) == CostToTarget(10, 50, 500)
    assert CURVE.cost_to_reach(0.85) is None


def test_run_shorter_than_window_reaches_no_level():
    assert AccuracyCurve((1, 2), (1, 2), (1, 2), (1.0, 1.0)).cost_to_reach(0.1) is None


def test_curve_sums_records_between_evaluations():
    problem = ridge(devices=3, dimension=12)
    run = aquila.simulate(
        aquila.create("qsgd", alpha=0.1 / problem.smoothness()),
        torch.zeros(12),
        problem.devices,
        rounds=5,
        evaluate=lambda theta: {"test_accuracy": float(theta.norm())},
        options=aquila.RunOptions(evaluate_every=2),
    )
    curve = accuracy_curve(run.records)
    assert curve.rounds == (2, 4, 5)
    assert curve.uplink_bytes[-1] == sum(record.uplink_bytes for record in run.records)
    assert curve.paper_bits == (2 * 3 * 6 * 12, 4 * 3 * 6 * 12, 5 * 3 * 6 * 12)
    assert curve.accuracy[-1] == float(run.theta.norm())


def test_accuracy_of_language_model_is_inverse_perplexity():
    run = [fake_record(0, metrics={"perplexity": 40.0, "test_accuracy": 0.9})]
    assert accuracy_curve(run).accuracy == (1 / 40,)
