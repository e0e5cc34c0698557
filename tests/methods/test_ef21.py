"""EF21 against a numpy implementation of its algorithm."""

import numpy as np
import torch

import aquila
from aquila.core.quantize import sparse
from helpers.problems import ridge


def test_follows_its_algorithm_round_by_round():
    problem = ridge(devices=5, dimension=40)
    alpha, density = 0.2 / problem.smoothness(), 0.2
    method = aquila.create("ef21", alpha=alpha, density=density)
    simulation = aquila.Simulation(method, torch.zeros(40, dtype=torch.float64), problem.devices)
    theta, memories = torch.zeros(40, dtype=torch.float64), [torch.zeros(40).double()] * 5
    for _ in range(30):
        gradients = [local(theta)[1] for local in problem.devices]
        memories = [
            g_m + sparse(g - g_m, density).decode()
            for g, g_m in zip(gradients, memories, strict=True)
        ]
        theta = theta - alpha * sum(memories) / 5
        simulation.advance()
        np.testing.assert_allclose(simulation.theta, theta, rtol=1e-8, atol=1e-10)


def test_constant_gradient_is_learnt_and_then_skipped():
    gradient = torch.arange(1.0, 9.0)
    method = aquila.create("ef21", alpha=0.1, density=0.5)
    simulation = aquila.Simulation(method, torch.zeros(8), [lambda theta: (0.0, gradient)])
    for _ in range(60):
        simulation.advance()
    simulation.devices[0].apply_ack(simulation.server.acks[0])
    torch.testing.assert_close(simulation.devices[0].state.q, gradient)
