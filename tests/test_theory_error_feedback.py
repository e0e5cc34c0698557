"""Check every inequality about AQUILA-TopK in docs/our-methods-proofs.md in real runs."""

import itertools
import math

import numpy as np
import pytest
import torch

import aquila
from aquila import theory
from aquila.core.random import Key, Purpose
from aquila.methods.aquila_topk import random_error
from helpers.problems import ridge

DENSITY = 0.25
DELTA = theory.SPARSE_CONTRACTION * DENSITY


class Observed:
    """One round: the virtual model, the gradient and the devices' errors before it."""

    def __init__(self, problem, alpha, theta, gradients, errors, memories):
        e, q = np.stack(errors), np.stack(memories)
        self.theta = theta
        self.virtual = theta - alpha * e.mean(0)
        self.gap = float(problem.loss(torch.from_numpy(self.virtual)))
        self.mean_gradient = gradients.mean(0)
        self.gradient = float(np.sum(self.mean_gradient**2))
        self.mean_error = float(np.sum(e.mean(0) ** 2))
        self.errors = (e**2).sum(1)
        self.innovation = ((gradients - q) ** 2).sum(1)


def observe(problem, alpha, rounds=80):
    method = aquila.create("aquila_topk", alpha=alpha, density=DENSITY)
    start = torch.zeros(problem.dimension, dtype=torch.float64)
    simulation = aquila.Simulation(method, start, problem.devices)
    seen = []
    for k in range(rounds):
        for m, device in enumerate(simulation.devices):
            device.apply_ack(simulation.server.acks[m])
        gradients = np.stack([local(simulation.theta)[1].numpy() for local in problem.devices])
        states = [device.state for device in simulation.devices]
        errors = [
            initial_error(m, gradients[m]) if k == 0 else s.e.numpy() for m, s in enumerate(states)
        ]
        theta = simulation.theta.numpy().copy()
        memories = [s.q.numpy() for s in states]
        seen.append(Observed(problem, alpha, theta, gradients, errors, memories))
        simulation.advance()
    return seen


def initial_error(device, gradient):
    """Return the error that a device draws in the first round; its memory is still zero."""
    key = Key((0, 0, device, Purpose.DEVICE))
    return random_error(torch.from_numpy(gradient), DENSITY, key).numpy()


@pytest.fixture(scope="module")
def problem():
    return ridge(devices=6, dimension=40, rows=60)


@pytest.fixture(scope="module", params=[0.02, 0.2])
def run(problem, request):
    alpha = request.param / problem.smoothness()
    return alpha, observe(problem, alpha)


def pairs(seen):
    return itertools.pairwise(seen)


def test_virtual_model_moves_by_the_gradient_from_the_first_round_on(run):
    alpha, seen = run
    for now, then in pairs(seen):
        moved = now.virtual - alpha * now.mean_gradient
        np.testing.assert_allclose(then.virtual, moved, atol=1e-10)


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
    first = theory.error_feedback_potential(
        seen[0].gap - optimum, float(seen[0].errors.mean()), alpha, L, DELTA
    )
    G2 = max(float(s.innovation.mean()) - s.gradient for s in seen)
    bound = 4 * first / (alpha * len(seen)) + 8 * (alpha * L / DELTA) ** 2 * max(G2, 0.0)
    assert np.mean([s.gradient for s in seen]) <= bound


class EvenKey:
    """A key whose numbers are spread evenly, so that means over them are expectations."""

    def uniform(self, like):
        return (torch.arange(like.numel(), dtype=like.dtype) + 0.5) / like.numel()


def test_initial_error_is_zero_on_average_and_bounded():
    v = torch.full((6000,), 2.0, dtype=torch.float64)
    e = random_error(v, DENSITY, EvenKey())
    energy = float((v**2).sum()) / DENSITY**2
    assert float(e.mean()) == pytest.approx(0, abs=1e-9)
    assert float((e**2).sum()) == pytest.approx(theory.RANDOM_ERROR_ENERGY * energy, rel=1e-6)
    assert float((e**2).max()) * len(e) <= 0.36 * energy * (1 + 1e-12)


def test_random_errors_raise_the_first_potential_within_the_bound(problem, run):
    """The loss is quadratic, so its expectation over the errors follows from its Hessian."""
    alpha, seen = run
    L, devices = problem.smoothness(), len(seen[0].errors)
    theta = torch.from_numpy(seen[0].theta)
    gap = float(problem.loss(theta) - problem.loss(problem.optimum()))
    error = theory.RANDOM_ERROR_ENERGY * seen[0].innovation / DENSITY**2
    traces = [float((block**2).sum()) / len(block) for block in problem.blocks]
    curvature = np.mean(traces) / len(theta) + problem.weight  # mean diagonal of the Hessian
    expected = gap + alpha**2 / 2 * curvature * error.mean() / devices
    exact = theory.error_feedback_potential(expected, error.mean(), alpha, L, DELTA)
    bound = theory.error_feedback_initial_potential(
        gap, seen[0].innovation.mean(), alpha, L, DENSITY, devices
    )
    assert gap < exact <= bound


def test_largest_alpha_solves_its_condition():
    for L, delta, B in ((1.0, 0.5, 1.0), (3.0, 0.01, 2.0)):
        alpha = theory.max_alpha_error_feedback(L, delta, B)
        assert alpha * L + 4 * (alpha * L * B / delta) ** 2 == pytest.approx(0.5)


def test_bounds_by_hand():
    assert theory.error_feedback_descent_bound(0.5, 1.0, 4.0, 2.0) == pytest.approx(-0.5 + 0.125)
    assert theory.error_feedback_potential(1.0, 2.0, 0.5, 2.0, 0.5) == pytest.approx(3.0)
    # E = 43/300 · 300/0.9² = 43/0.81, δ = 0.5: 1 + 0.5³ · 2² / 0.5 · E + 0.5² · 2 / 2 · E / 10
    initial = theory.error_feedback_initial_potential(1.0, 300.0, 0.5, 2.0, 0.9, 10)
    assert initial == pytest.approx(1 + 1.025 * 43 / 0.81)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: theory.error_feedback_descent_bound(0, 1, 1, 1), "alpha must be a number above 0"),
        (
            lambda: theory.error_feedback_descent_bound(0.1, 1, 1, math.nan),
            "error must be a number",
        ),
        (lambda: theory.error_feedback_potential(1, 1, 0.1, 1, 0), "delta must be above 0"),
        (
            lambda: theory.error_feedback_initial_potential(1, 1, 0.1, 1, 2, 5),
            "density must be above 0 and at most 1",
        ),
        (
            lambda: theory.error_feedback_initial_potential(1, 1, 0.1, 1, 0.5, 0),
            "devices must be at least 1",
        ),
        (lambda: theory.max_alpha_error_feedback(1, 2), "delta must be above 0 and at most 1"),
        (lambda: theory.max_alpha_error_feedback(1, 0.5, -1), "B must be a number above 0"),
    ],
)
def test_invalid_argument_is_named(call, named):
    with pytest.raises(ValueError, match=named):
        call()
