"""Weights by samples: every method optimises the weighted objective, also under loss."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import aquila
from aquila.core.method import server_memory
from aquila.sim.oracle import FunctionOracle
from helpers import contract
from helpers.contract_runs import every_method, methods_with_memory
from helpers.problems import Ridge, device_states, ridge

SAMPLES = [30, 10, 20, 10, 20]
PROBLEM = ridge(devices=len(SAMPLES), dimension=30)


def weighted_optimum(problem: Ridge, weights: list[float]) -> torch.Tensor:
    """Solve the normal equations of Σ w_m f_m / Σ w_m."""
    shares = [weight / sum(weights) for weight in weights]
    hessian = problem.weight * torch.eye(problem.dimension, dtype=torch.float64)
    right = torch.zeros(problem.dimension, dtype=torch.float64)
    for share, A, y in zip(shares, problem.blocks, problem.targets, strict=True):
        hessian, right = hessian + share * A.T @ A / len(A), right + share * A.T @ y / len(A)
    return torch.linalg.solve(hessian, right)


def weighted_loss(theta: torch.Tensor) -> float:
    losses = [PROBLEM.local(m, theta)[0] for m in range(len(SAMPLES))]
    return float(np.average(losses, weights=SAMPLES))


def devices() -> list[FunctionOracle]:
    pairs = zip(PROBLEM.devices, SAMPLES, strict=True)
    return [FunctionOracle(local, samples) for local, samples in pairs]


def create(row: contract.Row) -> aquila.Method:
    return contract.create(row.name, PROBLEM)


@every_method
def test_method_approaches_the_weighted_optimum(row):
    """Twice the promised gap holds for the weighted objective, too."""
    start = torch.zeros(PROBLEM.dimension, dtype=torch.float64)
    options = contract.run_options(row.name, weights="samples")
    run = aquila.simulate(create(row), start, devices(), contract.ROUNDS, options=options)
    best = weighted_loss(weighted_optimum(PROBLEM, SAMPLES))
    gap = (weighted_loss(run.theta) - best) / (weighted_loss(start) - best)
    contract.check_limit(row, "gap", gap / 2)


@pytest.mark.parametrize(("weights", "optimum"), [("uniform", 0.5), ("samples", 0.1)])
@pytest.mark.parametrize("name", ["fedavg", "fedsgd", "aquila", "lag", "diana", "marina"])
def test_methods_agree_on_the_objective(name, weights, optimum):
    """Two devices with 900 and 100 samples want the models 0 and 1."""
    wants = [FunctionOracle(lambda at: (float(at @ at) / 2, at), 900)]
    wants.append(FunctionOracle(lambda at: (float((at - 1) @ (at - 1)) / 2, at - 1), 100))
    options = aquila.RunOptions(weights=weights)
    method = aquila.create(name, alpha=0.5)
    run = aquila.simulate(method, torch.zeros(2), wants, 100, options=options)
    assert run.theta.tolist() == pytest.approx([optimum] * 2, abs=0.02)


@methods_with_memory
@settings(max_examples=10, deadline=None)
@given(
    weights=st.lists(st.integers(1, 10_000), min_size=5, max_size=5),
    loss=st.sampled_from([0.0, 0.3, 0.6]),
    seed=st.integers(0, 99),
)
def test_average_memory_is_weighted_whatever_is_lost(row, weights, loss, seed):
    method, dimension = create(row), PROBLEM.dimension
    options = aquila.RunOptions(
        uplink_loss=loss, downlink_loss=loss / 2,
        fleet=aquila.Fleet.uniform(dimension, 5).with_weights(weights),
    )  # fmt: skip
    theta = torch.zeros(dimension, dtype=torch.float64)
    simulation = aquila.Simulation(method, theta, PROBLEM.devices, seed, options)
    for _ in range(8):
        simulation.advance()
    states = device_states(simulation)
    memories = np.stack([method.device.memory(state).numpy() for state in states])
    average = server_memory(method.server).memory(simulation.server.state)
    expected = np.average(memories, axis=0, weights=weights)
    np.testing.assert_allclose(average.numpy(), expected, rtol=1e-9, atol=1e-11)


def test_recorded_loss_is_the_weighted_one():
    run = aquila.simulate(
        aquila.create("fedsgd"), torch.zeros(30, dtype=torch.float64), devices(), 1,
        options=aquila.RunOptions(weights="samples"),
    )  # fmt: skip
    assert run.records[0].loss == pytest.approx(weighted_loss(torch.zeros(30, dtype=torch.float64)))


def test_devices_without_samples_are_named():
    with pytest.raises(ValueError, match=r"weights=samples needs .* but device 0 does not have"):
        aquila.simulate(
            aquila.create("fedsgd"), torch.zeros(30), PROBLEM.devices,
            options=aquila.RunOptions(weights="samples"),
        )  # fmt: skip


def test_run_with_other_weights_is_not_resumed(tmp_path):
    theta, method = torch.zeros(30), aquila.create("fedsgd")
    aquila.simulate(method, theta, devices(), 2, options=aquila.RunOptions(out=tmp_path))
    options = aquila.RunOptions(out=tmp_path, resume=True, weights="samples")
    with pytest.raises(ValueError, match="weights"):
        aquila.simulate(method, theta, devices(), 4, options=options)
