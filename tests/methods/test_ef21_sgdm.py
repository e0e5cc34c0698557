"""EF21-SGDM against a numpy implementation of its algorithm, with and without lost replies."""

import numpy as np
import pytest
import torch

import aquila
from aquila.core.quantize import sparse
from helpers.problems import all_gradients, device_states, ridge


def compress(v, density):
    return sparse(torch.from_numpy(v), density).decode().numpy()


@pytest.mark.parametrize("uplink_loss", [0.0, 0.3])
def test_follows_its_algorithm_round_by_round(uplink_loss):
    problem, density, eta = ridge(devices=5, dimension=40), 0.2, 0.3
    alpha = 0.2 / problem.smoothness()
    method = aquila.create("ef21_sgdm", alpha=alpha, density=density, eta=eta)
    simulation = aquila.Simulation(
        method, torch.zeros(40).double(), problem.devices, 0,
        aquila.RunOptions(uplink_loss=uplink_loss),
    )  # fmt: skip
    gradients, theta = all_gradients(problem), np.zeros(40)
    q, v = np.zeros((5, 40)), gradients(theta)
    lost = 0
    for k in range(30):
        if k > 0:
            v = (1 - eta) * v + eta * gradients(theta)
        record = simulation.advance()
        for m in record.levels:  # the uploads that arrived
            q[m] += compress(v[m] - q[m], density)
        lost += record.lost
        theta = theta - alpha * q.mean(axis=0)
        np.testing.assert_allclose(simulation.theta, theta, rtol=1e-8, atol=1e-10)
        states = device_states(simulation)
        np.testing.assert_allclose([s.v for s in states], v, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose([s.q for s in states], q, rtol=1e-8, atol=1e-10)
    assert (lost > 10) == (uplink_loss > 0)


def test_with_eta_one_it_is_ef21():
    problem = ridge(devices=4, dimension=20)
    alpha = 0.3 / problem.smoothness()
    runs = [
        aquila.simulate(method, torch.zeros(20), problem.devices, 20)
        for method in (
            aquila.create("ef21", alpha=alpha, density=0.2),
            aquila.create("ef21_sgdm", alpha=alpha, density=0.2, eta=1.0),
        )
    ]
    torch.testing.assert_close(runs[0].theta, runs[1].theta)
    assert [r.uplink for r in runs[0].records] == [r.uplink for r in runs[1].records]


def test_momentum_removes_the_noise_of_minibatches():
    """Gradients θ + noise: the average follows θ, and a memory of single gradients does not."""
    generator = torch.Generator().manual_seed(0)

    def noisy(theta):
        return float(theta @ theta) / 2, theta + 5 * torch.randn(50, generator=generator)

    distances = {
        eta: float(
            aquila.simulate(
                aquila.create("ef21_sgdm", alpha=0.05, density=0.1, eta=eta),
                torch.zeros(50), [noisy] * 4, 400,
            ).theta.norm()
        )
        for eta in (0.1, 1.0)
    }  # fmt: skip
    assert distances[0.1] < 0.9 * distances[1.0]
