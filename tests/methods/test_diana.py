"""DIANA against a numpy implementation of its algorithm."""

import numpy as np
import pytest
import torch

import aquila
from aquila.core.quantize import levels_for_bits, stochastic_round
from aquila.core.random import Key, Purpose
from helpers.problems import ridge


@pytest.mark.parametrize("bits", [2, 4])
def test_follows_its_algorithm_round_by_round(bits):
    problem = ridge(devices=5, dimension=40)
    alpha, eta = 0.1 / problem.smoothness(), 0.25
    method = aquila.create("diana", alpha=alpha, eta=eta, bits=bits)
    simulation = aquila.Simulation(
        method, torch.zeros(40, dtype=torch.float64), problem.devices, seed=9
    )
    theta, h = torch.zeros(40, dtype=torch.float64), torch.zeros(5, 40, dtype=torch.float64)
    for round_number in range(30):
        u = torch.stack([
            stochastic_round(
                local(theta)[1] - h[m],
                levels_for_bits(bits),
                Key((9, round_number, m, Purpose.DEVICE)),
            ).decode()
            for m, local in enumerate(problem.devices)
        ])  # fmt: skip
        theta = theta - alpha * (h.mean(0) + u.mean(0))
        h = h + eta * u
        simulation.advance()
        np.testing.assert_allclose(simulation.theta, theta, rtol=1e-8, atol=1e-10)


def test_without_a_memory_it_is_qsgd():
    problem = ridge(devices=4, dimension=30)
    alpha = 0.1 / problem.smoothness()
    thetas = [
        aquila.simulate(
            aquila.create(name, alpha=alpha, bits=4, **options),
            torch.zeros(30, dtype=torch.float64),
            problem.devices,
            rounds=10,
            options=aquila.RunOptions(uplink_loss=0.3),
        ).theta
        for name, options in (("diana", {"eta": 0}), ("qsgd", {}))
    ]
    torch.testing.assert_close(*thetas)
