"""FedAvg against a numpy implementation: the weighted average of locally trained models."""

import numpy as np
import pytest
import torch

import aquila
from aquila.sim.oracle import FunctionOracle
from helpers.problems import ridge

DIMENSION, SAMPLES = 20, [10, 70, 5, 40, 25, 1, 30, 12, 60, 8]


@pytest.fixture(scope="module")
def problem():
    return ridge(devices=len(SAMPLES), dimension=DIMENSION)


def step_size(problem):
    return 0.3 / problem.smoothness()


def start(problem, local_steps=5, seed=0, weights="samples", **parameters):
    method = aquila.create("fedavg", alpha=step_size(problem), **parameters)
    devices = [
        FunctionOracle(local, samples, local_steps)
        for local, samples in zip(problem.devices, SAMPLES, strict=True)
    ]
    theta0 = torch.zeros(DIMENSION, dtype=torch.float64)
    return aquila.Simulation(method, theta0, devices, seed, aquila.RunOptions(weights=weights))


def trained(problem, m, theta, steps):
    """Return the model of a device after its local steps."""
    A, y = problem.blocks[m].numpy(), problem.targets[m].numpy()
    for _ in range(steps):
        gradient = A.T @ (A @ theta - y) / len(y) + problem.weight * theta
        theta = theta - step_size(problem) * gradient
    return theta


@pytest.mark.parametrize("fraction", [1.0, 0.3])
@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_fedavg_averages_trained_models(problem, weights, steps, fraction):
    simulation = start(problem, steps, weights=weights, fraction=fraction)
    theta = np.zeros(DIMENSION)
    for _ in range(20):
        record = simulation.advance()
        chosen = sorted(record.levels)
        models = [trained(problem, m, theta, steps) for m in chosen]
        weight_of = SAMPLES if weights == "samples" else [1] * len(SAMPLES)
        theta = np.average(models, axis=0, weights=[weight_of[m] for m in chosen])
        np.testing.assert_allclose(simulation.theta, theta, rtol=1e-9, atol=1e-11)
        assert record.paper_bits == 64 * DIMENSION * len(chosen)


@pytest.mark.parametrize(
    ("fraction", "count"), [(1.0, 10), (0.5, 5), (0.3, 3), (0.24, 2), (0.01, 1)]
)
def test_fraction_is_the_fraction_of_devices_in_a_round(problem, fraction, count):
    simulation = start(problem, fraction=fraction)
    records = [simulation.advance() for _ in range(60)]
    assert all(record.uploads == count == len(record.uplink) for record in records)
    assert all(record.skips == record.lost == 0 for record in records)
    # every device is selected at some point
    assert set().union(*(record.levels for record in records)) == set(range(10))


def test_number_of_devices_is_rounded_to_nearest(problem):
    method = aquila.create("fedavg", fraction=0.29)  # 0.29 * 100 is slightly below 29
    theta0 = torch.zeros(DIMENSION, dtype=torch.float64)
    assert aquila.Simulation(method, theta0, problem.devices * 10).advance().uploads == 29


def test_choice_depends_on_round_and_seed(problem):
    def choices(seed):
        simulation = start(problem, seed=seed, fraction=0.3)
        return [tuple(simulation.advance().levels) for _ in range(10)]

    assert choices(0) == choices(0)
    assert choices(0) != choices(1)
    assert len(set(choices(0))) > 3


def test_devices_of_equal_size_with_one_step_are_gradient_descent(problem):
    method = aquila.create("fedavg", alpha=step_size(problem))
    theta = torch.zeros(DIMENSION, dtype=torch.float64)
    simulation = aquila.Simulation(method, theta, problem.devices)
    for _ in range(10):
        simulation.advance()
        gradient = sum(local(theta)[1] for local in problem.devices) / len(SAMPLES)
        theta = theta - step_size(problem) * gradient
        torch.testing.assert_close(simulation.theta, theta, rtol=1e-9, atol=1e-11)
