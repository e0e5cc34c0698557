"""LAG against a numpy implementation of its rule, and its convergence."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import aquila
from helpers.problems import all_gradients, ridge


class Reference:
    """LAG-WK in numpy, with averages instead of sums: upload if the gradient changed enough."""

    def __init__(self, gradients, theta0, alpha, xi, depth):
        self.gradients, self.alpha, self.xi, self.depth = gradients, alpha, xi, depth
        self.models = [theta0]
        self.known = np.zeros_like(gradients(theta0))

    def advance(self):
        """Run a round; return the devices that uploaded."""
        past = self.models[-self.depth - 1 :]
        steps = sum(np.sum((b - a) ** 2) for a, b in pairwise(past))
        new = self.gradients(self.models[-1])
        changed = np.sum((new - self.known) ** 2, axis=1) > self.xi / self.alpha**2 * steps
        self.known[changed] = new[changed]
        self.models.append(self.models[-1] - self.alpha * self.known.mean(axis=0))
        return set(np.flatnonzero(changed).tolist())


@pytest.fixture(scope="module")
def problem():
    return ridge(devices=10, dimension=40, rows=60)


def start(problem, relative_step, **parameters):
    """Return a run from zero with a step size of `relative_step` / L."""
    method = aquila.create("lag", alpha=relative_step / problem.smoothness(), **parameters)
    theta0 = torch.zeros(problem.dimension, dtype=torch.float64)
    return aquila.Simulation(method, theta0, problem.devices)


@pytest.mark.parametrize(("xi", "depth"), [(0.1, 10), (0.3, 10), (1.0, 1)])
def test_lag_follows_its_rule_round_by_round(problem, xi, depth):
    simulation = start(problem, 0.5, xi=xi, depth=depth)
    alpha = 0.5 / problem.smoothness()
    reference = Reference(all_gradients(problem), np.zeros(40), alpha, xi, depth)
    uploads = 0
    for number in range(60):
        uploaded = reference.advance()
        record = simulation.advance()
        assert record.levels == dict.fromkeys(uploaded, 64)
        assert record.skips == 10 - len(uploaded)
        assert record.paper_bits == 64 * 40 * len(uploaded)
        np.testing.assert_allclose(simulation.theta, reference.models[-1], rtol=1e-9, atol=1e-12)
        assert number > 0 or len(uploaded) == 10
        uploads += len(uploaded)
    assert 20 < uploads < 500  # of 600, so devices both uploaded and skipped


def test_depth_sets_the_number_of_steps_in_the_trigger(problem):
    deep, shallow = start(problem, 0.5, depth=10), start(problem, 0.5, depth=1)
    uploads = [sum(run.advance().uploads for _ in range(40)) for run in (deep, shallow)]
    assert uploads[0] < uploads[1]


def test_without_weight_lag_is_gradient_descent(problem):
    simulation, theta = start(problem, 0.5, xi=0.0), np.zeros(40)
    for _ in range(20):
        assert simulation.advance().uploads == 10
        theta = theta - 0.5 / problem.smoothness() * all_gradients(problem)(theta).mean(axis=0)
        np.testing.assert_allclose(simulation.theta, theta, rtol=1e-9, atol=1e-12)


def test_lag_converges_and_skips(problem):
    simulation = start(problem, 0.5)
    skips = sum(simulation.advance().skips for _ in range(300))
    assert skips > 300
    torch.testing.assert_close(simulation.theta, problem.optimum(), rtol=0, atol=1e-6)
