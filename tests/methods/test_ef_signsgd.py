"""EF-signSGD against numbers computed by hand and a numpy implementation."""

import numpy as np
import pytest
import torch

import aquila
from aquila.methods.ef_signsgd import ScaledSigns
from helpers.problems import all_gradients, device_states, ridge


def test_three_rounds_by_hand():
    """alpha = 1, and g = (3, -2, 1, 0) in every round.

    round  p = e + g                mean |p|  sent                         error after
    0      ( 3,    -2,    1,   0)   1.5       ( 1.5,  -1.5,   1.5,  1.5)   (1.5,  -0.5, -0.5, -1.5)
    1      ( 4.5, -2.5, 0.5, -1.5)  2.25      ( 2.25, -2.25, 2.25, -2.25)  (2.25, -0.25, -1.75, .75)
    """
    gradient = torch.tensor([3.0, -2, 1, 0], dtype=torch.float64)
    method = aquila.create("ef_signsgd", alpha=1.0)
    theta0 = torch.zeros(4, dtype=torch.float64)
    simulation = aquila.Simulation(method, theta0, [lambda theta: (0.0, gradient)])
    expected = [
        ([-1.5, 1.5, -1.5, -1.5], [1.5, -0.5, -0.5, -1.5]),
        ([-3.75, 3.75, -3.75, 0.75], [2.25, -0.25, -1.75, 0.75]),
    ]
    for theta, error in expected:
        simulation.advance()
        assert simulation.theta.tolist() == pytest.approx(theta)
        assert device_states(simulation)[0].e.tolist() == pytest.approx(error)


def test_follows_its_equations_round_by_round():
    problem = ridge(devices=4, dimension=20)
    alpha = 0.2 / problem.smoothness()
    method = aquila.create("ef_signsgd", alpha=alpha)
    simulation = aquila.Simulation(method, torch.zeros(20, dtype=torch.float64), problem.devices)
    gradients, theta, e = all_gradients(problem), np.zeros(20), np.zeros((4, 20))
    for _ in range(30):
        p = e + gradients(theta)
        u = np.abs(p).mean(axis=1, keepdims=True) * np.where(p >= 0, 1, -1)
        e, theta = p - u, theta - alpha * u.mean(0)
        record = simulation.advance()
        assert set(record.levels.values()) == {1}
        np.testing.assert_allclose(simulation.theta, theta, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose([s.e for s in device_states(simulation)], e, atol=1e-9)


def test_sending_reduces_the_error():
    """||p - u||² = ||p||² - ||p||_1² / d (Lemma 8), with one bucket."""
    p = torch.randn(1000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    error = (p - ScaledSigns(0)(p).decode()).square().sum()
    assert float(error) == pytest.approx(float(p @ p - p.abs().sum() ** 2 / 1000))


def test_buckets_have_their_own_magnitude():
    p = torch.tensor([1.0, -3, 0, 100, -300, 50, -7])
    u = ScaledSigns(3)(p).decode()
    third, second = 4 / 3, 150.0
    assert u.tolist() == pytest.approx([third, -third, third, second, -second, second, -7])
    assert ScaledSigns(3)(torch.zeros(7)) is None
