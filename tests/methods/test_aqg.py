"""AQG against a numpy implementation of its rule, and its augmented step."""

import numpy as np
import pytest
import torch

import aquila
from aquila.methods.aqg import doubling
from helpers.problems import all_gradients, device_states, ridge

DEVICES, DIMENSION = 6, 30


def quantize(v, bits):
    """The midrise grid of LAQ."""
    R, tau = np.max(np.abs(v)), 1 / (2**bits - 1)
    return 2 * tau * R * np.floor((v + R) / (2 * tau * R) + 0.5) - R


class Reference:
    """AQG in numpy: the smallest width that passes LAQ's trigger, or a skip."""

    def __init__(self, gradients, alpha, widths, t_bar):
        self.gradients, self.alpha, self.widths, self.t_bar = gradients, alpha, widths, t_bar
        self.models, self.q = [np.zeros(DIMENSION)], np.zeros((DEVICES, DIMENSION))
        self.last_error, self.silence = np.zeros(DEVICES), np.full(DEVICES, t_bar)

    def advance(self):
        """Run a round; return the width of each device that uploads."""
        uploaded = {}
        steps = [np.sum((b - a) ** 2) for a, b in zip(self.models, self.models[1:], strict=False)][
            -10:
        ]
        drift = 0.8 / self.alpha**2 * (np.mean(steps) if steps else 0.0)
        for m, v in enumerate(self.gradients(self.models[-1]) - self.q):
            errors = {b: np.sum((v - quantize(v, b)) ** 2) for b in self.widths}
            passing = [
                b
                for b in self.widths
                if np.sum(quantize(v, b) ** 2) >= drift + 3 * (errors[b] + self.last_error[m])
            ]
            if not passing and self.silence[m] < self.t_bar:
                self.silence[m] += 1
                continue
            bits = min(passing) if passing else max(self.widths)
            self.q[m] += quantize(v, bits)
            self.last_error[m], self.silence[m], uploaded[m] = errors[bits], 0, bits
        self.models.append(self.models[-1] - self.alpha * self.q.mean(axis=0))
        return uploaded


@pytest.fixture(scope="module")
def problem():
    return ridge(devices=DEVICES, dimension=DIMENSION)


def start(problem, options=aquila.RunOptions(), **parameters):
    method = aquila.create("aqg", alpha=0.2 / problem.smoothness(), **parameters)
    theta0 = torch.zeros(DIMENSION, dtype=torch.float64)
    return aquila.Simulation(method, theta0, problem.devices, options=options)


@pytest.mark.parametrize(
    ("b_min", "b_max", "t_bar", "widths"), [(2, 8, 100, (2, 4, 8)), (2, 2, 3, (2,))]
)
def test_follows_its_rule_round_by_round(problem, b_min, b_max, t_bar, widths):
    simulation = start(problem, b_min=b_min, b_max=b_max, t_bar=t_bar)
    alpha = 0.2 / problem.smoothness()
    reference = Reference(all_gradients(problem), alpha, widths, t_bar)
    used = []
    for _ in range(50):
        uploaded = reference.advance()
        assert simulation.advance().levels == uploaded
        np.testing.assert_allclose(simulation.theta, reference.models[-1], rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(
            [s.q for s in device_states(simulation)], reference.q, rtol=1e-8, atol=1e-10
        )
        used += uploaded.values()
    assert set(used) == set(widths)
    assert 10 < len(used) < 50 * DEVICES


def test_augmented_step_counts_the_arrived_changes_more_often(problem):
    """q̄ <- q̄ + c, and the step is alpha (q̄ + c / (1 - p)) with the q̄ before the round."""
    alpha = 0.2 / problem.smoothness()
    options = aquila.RunOptions(uplink_loss=0.5)
    simulation = start(problem, options, dropout=0.5)
    theta, q_bar = np.zeros(DIMENSION), np.zeros(DIMENSION)
    for _ in range(20):
        simulation.advance()
        mean = np.mean([s.q.numpy() for s in device_states(simulation)], axis=0)
        theta = theta - alpha * (q_bar + 2 * (mean - q_bar))
        q_bar = mean
        np.testing.assert_allclose(simulation.theta, theta, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(simulation.server.state.q_bar, q_bar, atol=1e-12)


@pytest.mark.parametrize(
    ("b_min", "b_max", "widths"),
    [(2, 8, (2, 4, 8)), (2, 7, (2, 4, 7)), (3, 3, (3,)), (2, 31, (2, 4, 8, 16, 31))],
)
def test_list_of_widths(b_min, b_max, widths):
    assert doubling(b_min, b_max) == widths


def test_empty_list_is_refused():
    with pytest.raises(ValueError, match=r"^aqg: b_max must be at least b_min, 8, not 4$"):
        aquila.create("aqg", b_min=8, b_max=4)
