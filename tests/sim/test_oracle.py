"""Oracles from plain functions."""

import torch

from aquila.sim.oracle import FunctionOracle


def test_local_steps_are_gradient_steps():
    def square(theta):
        return float(theta @ theta) / 2, theta

    theta, alpha = torch.tensor([1.0, -2.0], dtype=torch.float64), 0.1
    loss, update = FunctionOracle(square, local_steps=3).train(theta, alpha)
    assert loss == 2.5
    torch.testing.assert_close(theta - alpha * update, theta * (1 - alpha) ** 3)
