"""The average of the models that a run evaluates and saves."""

import numpy as np
import pytest
import torch

import aquila
from helpers.problems import ridge

PROBLEM = ridge(devices=4, dimension=12)
ALPHA = 0.3 / PROBLEM.smoothness()


def make_simulation(decay):
    method = aquila.create("aquila_dither", alpha=ALPHA, density=0.1)
    start = torch.ones(PROBLEM.dimension)
    options = aquila.RunOptions(model_average=decay)
    return aquila.Simulation(method, start, PROBLEM.devices, options=options)


def test_average_follows_its_formula():
    simulation, average = make_simulation(0.5), torch.ones(PROBLEM.dimension, dtype=torch.float64)
    for k in range(15):  # from round 8 on, the decay is 0.5
        simulation.advance()
        decay = min(0.5, (k + 1) / (k + 10))
        average = decay * average + (1 - decay) * simulation.theta.double()
    torch.testing.assert_close(simulation.evaluated_model, average.float())
    assert simulation.evaluated_model.dtype == torch.float32


def test_training_does_not_change_by_a_bit():
    plain, averaged = make_simulation(0), make_simulation(0.9)
    for _ in range(5):
        first, second = plain.advance(), averaged.advance()
        assert first == second
        assert torch.equal(plain.theta, averaged.theta)
    assert torch.equal(plain.evaluated_model, plain.theta)
    assert not torch.equal(averaged.evaluated_model, averaged.theta)


def simulate(decay, **options):
    return aquila.simulate(
        aquila.create("aquila_dither", alpha=ALPHA, density=0.02),
        torch.zeros(PROBLEM.dimension),
        PROBLEM.devices,
        60,
        evaluate=lambda theta: {"test_loss": PROBLEM.loss(theta.double())},
        options=aquila.RunOptions(model_average=decay, **options),
    )


def test_average_of_noisy_models_is_better_than_the_last_model():
    optimum = PROBLEM.loss(PROBLEM.optimum())
    last, averaged = (
        np.mean([r.metrics["test_loss"] - optimum for r in simulate(decay).records[-10:]])
        for decay in (0, 0.9)
    )
    assert averaged < last / 2


def test_result_and_best_model_are_averages():
    run = simulate(0.9)
    assert run.records[-1].metrics["test_loss"] == PROBLEM.loss(run.theta.double())
    assert run.best.value == PROBLEM.loss(run.best.theta.double())


def test_run_with_another_decay_does_not_resume(tmp_path):
    simulate(0.9, out=tmp_path / "run")
    with pytest.raises(ValueError, match="model_average"):
        simulate(0.8, out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("decay", [-0.1, 1, "much"])
def test_wrong_decay_is_named(decay):
    with pytest.raises((TypeError, ValueError), match="model_average must be"):
        aquila.RunOptions(model_average=decay)
