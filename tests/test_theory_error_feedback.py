"""Check every inequality about AQUILA-TopK in docs/our-methods-proofs.md in real runs."""

import itertools
import math

import numpy as np
import pytest
import torch

import aquila
from aquila import theory
from helpers.problems import ridge

DENSITY = 0.25
DELTA = theory.SPARSE_CONTRACTION * DENSITY


class Observed:
    """One round: the virtual model, the gradient and the devices' errors before it."""

    def __init__(self, problem, alpha, theta, gradients, states):
        e = np.stack([s.e.numpy() for s in states])
        q = np.stack([s.q.numpy() for s in states])
        self.theta = theta
        self.virtual = theta - alpha * e.mean(0)
        self.gap = float(problem.loss(torch.from_numpy(self.virtual)))
        self.gradient = float(np.sum(gradients.mean(0) ** 2))
        self.mean_error = float(np.sum(e.mean(0) ** 2))
        self.errors = (e**2).sum(1)
        self.innovation = ((gradients - q) ** 2).sum(1)


def observe(problem, alpha, rounds=80):
    method = aquila.create("aquila_topk", alpha=alpha, density=DENSITY)
    start = torch.zeros(problem.dimension, dtype=torch.float64)
    simulation = aquila.Simulation(method, start, problem.devices)
    seen = []
    for _ in range(rounds):
        for m, device in enumerate(simulation.devices):
            device.apply_ack(simulation.server.acks[m])
        gradients = np.stack([local(simulation.theta)[1].numpy() for local in problem.devices])
        states = [device.state for device in simulation.devices]
        theta = simulation.theta.numpy().copy()
        seen.append(Observed(problem, alpha, theta, gradients, states))
        simulation.advance()
    return seen


@pytest.fixture(scope="module")
def problem():
    return ridge(devices=6, dimension=40, rows=60)


@pytest.fixture(scope="module", params=[0.02, 0.2])
def run(problem, request):
    alpha = request.param / problem.smoothness()
    return alpha, observe(problem, alpha)


def pairs(seen):
    return itertools.pairwise(seen)


def test_virtual_model_descends_within_the_bound(problem, run):
    alpha, seen = run
    L = problem.smoothness()
    for now, then in pairs(seen):
        bound = theory.error_feedback_descent_bound(alpha, L, now.gradient, now.mean_error)
        assert then.gap - now.gap <= bound + 1e-9 * abs(now.gap)


def test_errors_contract_up_to_the_innovations(run):
    """||e⁺||² <= (1 - δ/2) ||e||² + 2/δ ||g - q||² for each device."""
    _, seen = run
    for now, then in pairs(seen):
        allowed = (1 - DELTA / 2) * now.errors + 2 / DELTA * now.innovation
        assert (then.errors <= allowed + 1e-12).all()


def test_potential_falls_up_to_the_innovations(problem, run):
    alpha, seen = run
    L = problem.smoothness()
    value = [
        theory.error_feedback_potential(s.gap, float(s.errors.mean()), alpha, L, DELTA)
        for s in seen
    ]
    for k, (now, _) in enumerate(pairs(seen)):
        slack = 2 * alpha**3 * L**2 / DELTA**2 * now.innovation.mean()
        allowed = value[k] - alpha / 2 * (1 - alpha * L) * now.gradient + slack
        assert value[k + 1] <= allowed + 1e-9 * value[k]


def test_average_gradient_is_within_its_bound(problem):
    """With the largest α. B = 1, and G² is the largest excess of H over ||∇f||²."""
    L = problem.smoothness()
    alpha = theory.max_alpha_error_feedback(L, DELTA)
    seen = observe(problem, alpha, rounds=120)
    optimum = float(problem.loss(problem.optimum()))
    first = theory.error_feedback_potential(seen[0].gap - optimum, 0.0, alpha, L, DELTA)
    G2 = max(float(s.innovation.mean()) - s.gradient for s in seen)
    bound = 4 * first / (alpha * len(seen)) + 8 * (alpha * L / DELTA) ** 2 * max(G2, 0.0)
    assert np.mean([s.gradient for s in seen]) <= bound


def test_largest_alpha_solves_its_condition():
    for L, delta, B in ((1.0, 0.5, 1.0), (3.0, 0.01, 2.0)):
        alpha = theory.max_alpha_error_feedback(L, delta, B)
        assert alpha * L + 4 * (alpha * L * B / delta) ** 2 == pytest.approx(0.5)


def test_bounds_by_hand():
    assert theory.error_feedback_descent_bound(0.5, 1.0, 4.0, 2.0) == pytest.approx(-0.5 + 0.125)
    assert theory.error_feedback_potential(1.0, 2.0, 0.5, 2.0, 0.5) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: theory.error_feedback_descent_bound(0, 1, 1, 1), "alpha must be a number above 0"),
        (
            lambda: theory.error_feedback_descent_bound(0.1, 1, 1, math.nan),
            "error must be a number",
        ),
        (lambda: theory.error_feedback_potential(1, 1, 0.1, 1, 0), "delta must be above 0"),
        (lambda: theory.max_alpha_error_feedback(1, 2), "delta must be above 0 and at most 1"),
        (lambda: theory.max_alpha_error_feedback(1, 0.5, -1), "B must be a number above 0"),
    ],
)
def test_invalid_argument_is_named(call, named):
    with pytest.raises(ValueError, match=named):
        call()
