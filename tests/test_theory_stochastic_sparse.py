"""Check every inequality about AQUILA-Dither in docs/our-methods-proofs.md in real runs.

On quadratic losses all expectations over the dither have closed forms, so none is estimated.
"""

import math

import numpy as np
import pytest
import torch

import aquila
from aquila import theory
from helpers.problems import ridge

DENSITY = 0.25
OMEGA = 1 / DENSITY
ETA = 1 / (1 + OMEGA)
RHO = theory.memory_contraction(ETA, OMEGA)
M = 6


class Observed:
    """State before a round, and its expectation after the round."""

    def __init__(self, problem, alpha, theta, q):
        self.problem, self.alpha, self.theta, self.q = problem, alpha, theta, q
        self.gradients = np.stack([local(torch.from_numpy(theta))[1] for local in problem.devices])
        self.v = self.gradients - q
        self.full = self.gradients.mean(0)
        self.gradient = float(self.full @ self.full)
        self.loss = float(problem.loss(torch.from_numpy(theta)))
        self.innovation = float((self.v**2).sum(1).mean())

    @property
    def variance(self):
        """Variance of each coordinate of each upload: step² f (1 - f), f the fraction of a step."""
        step = np.sqrt((self.v**2).mean(1, keepdims=True)) / DENSITY
        part = np.abs(self.v) / np.where(step > 0, step, 1) % 1
        return step**2 * part * (1 - part)

    def next_loss(self):
        curvature = np.diag(self.problem.hessian().numpy())
        moved = torch.from_numpy(self.theta - self.alpha * self.full)
        noise = self.alpha**2 / 2 * (self.variance.sum(0) / M**2 @ curvature)
        return float(self.problem.loss(moved) + noise)

    def next_memory_error(self):
        """Average of E||q_m + η u_m - ∇f_m(θ)||²."""
        return float(((1 - ETA) ** 2 * self.v**2 + ETA**2 * self.variance).sum(1).mean())

    def next_innovation(self):
        """Average of E||q_m + η u_m - ∇f_m(θ⁺)||², which is linear in the uploads."""
        identity, total = np.eye(len(self.theta)), 0.0
        for m, A in enumerate(block.numpy() for block in self.problem.blocks):
            shift = self.alpha * (A.T @ A / len(A) + self.problem.weight * identity)
            mean = self.q[m] + ETA * self.v[m] - self.gradients[m] + shift @ self.full
            own, others = ETA * identity + shift / M, shift / M
            spread = self.variance[m] @ (own**2).sum(0)
            spread += (self.variance.sum(0) - self.variance[m]) @ (others**2).sum(0)
            total += mean @ mean + spread
        return float(total / M)


def observe(problem, alpha, rounds=80):
    method = aquila.create("aquila_dither", alpha=alpha, density=DENSITY)
    start = torch.zeros(problem.dimension, dtype=torch.float64)
    simulation = aquila.Simulation(method, start, problem.devices)
    seen = []
    for _ in range(rounds):
        q = np.stack([device.state.q.numpy() for device in simulation.devices])
        seen.append(Observed(problem, alpha, simulation.theta.numpy().copy(), q))
        simulation.advance()
    return seen


@pytest.fixture(scope="module")
def problem():
    return ridge(devices=M, dimension=40, rows=60)


@pytest.fixture(scope="module")
def L(problem):
    """Largest smoothness constant of a device."""
    return max(
        float(torch.linalg.eigvalsh(A.T @ A / len(A)).max()) + problem.weight
        for A in problem.blocks
    )


@pytest.fixture(scope="module", params=[0.02, 0.2])
def run(problem, L, request):
    alpha = request.param / L
    return alpha, observe(problem, alpha)


def test_variance_of_uploads_is_within_its_bound(run):
    """The bound is step ||v||_1, which is at most ω ||v||²."""
    for state in run[1]:
        promised = np.sqrt((state.v**2).mean(1)) / DENSITY * np.abs(state.v).sum(1)
        assert (state.variance.sum(1) <= promised + 1e-12).all()
        assert (promised <= OMEGA * (state.v**2).sum(1) + 1e-12).all()


def test_expected_descent_is_within_the_bound(L, run):
    alpha, seen = run
    for s in seen:
        bound = theory.stochastic_sparse_descent_bound(alpha, L, s.gradient, s.innovation, OMEGA, M)
        assert s.next_loss() - s.loss <= bound + 1e-9 * abs(s.loss)


def test_expected_memory_error_contracts(run):
    """E||q⁺ - g||² <= (1 - ρ) ||q - g||²."""
    for s in run[1]:
        assert s.next_memory_error() <= (1 - RHO) * s.innovation + 1e-12


def test_expected_innovation_grows_at_most_with_the_step(L, run):
    """E H⁺ <= (1 - ρ/2) H + 3α²L²/ρ (||∇f||² + ω/M H)."""
    alpha, seen = run
    for s in seen:
        moved = s.gradient + OMEGA / M * s.innovation
        bound = (1 - RHO / 2) * s.innovation + 3 * (alpha * L) ** 2 / RHO * moved
        assert s.next_innovation() <= bound + 1e-12


def test_expected_potential_falls_by_its_bound(problem, L):
    alpha = theory.max_alpha_stochastic_sparse(L, OMEGA, RHO, M)
    for s in observe(problem, alpha):
        now = theory.stochastic_sparse_potential(s.loss, s.innovation, alpha, L, OMEGA, RHO, M)
        then = theory.stochastic_sparse_potential(
            s.next_loss(), s.next_innovation(), alpha, L, OMEGA, RHO, M
        )
        assert then <= now - alpha / 2 * s.gradient + 1e-9 * now


def test_average_gradient_is_within_its_bound(problem, L):
    alpha = theory.max_alpha_stochastic_sparse(L, OMEGA, RHO, M)
    seen = observe(problem, alpha, rounds=120)
    gap = seen[0].loss - float(problem.loss(problem.optimum()))
    first = theory.stochastic_sparse_potential(gap, seen[0].innovation, alpha, L, OMEGA, RHO, M)
    assert np.mean([s.gradient for s in seen]) <= 2 * first / (alpha * len(seen))


def test_largest_alpha_by_hand():
    assert theory.max_alpha_stochastic_sparse(2.0, 0.1, 1.0, 1000) == pytest.approx(0.25)
    assert theory.max_alpha_stochastic_sparse(2.0, 3.0, 0.25, 9) == pytest.approx(0.5 / 4 / 2)


def test_bounds_by_hand():
    assert theory.stochastic_sparse_descent_bound(0.5, 1.0, 4.0, 2.0, 8.0, 4) == pytest.approx(
        -1.5 + 0.5
    )
    assert theory.stochastic_sparse_potential(1.0, 2.0, 0.5, 2.0, 3.0, 0.25, 4) == pytest.approx(
        1 + 6.0
    )
    assert theory.memory_contraction(0.25, 3.0) == pytest.approx(0.25)
    assert theory.memory_contraction(0.375, 3.0) == pytest.approx(0.1875)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (
            lambda: theory.stochastic_sparse_descent_bound(0, 1, 1, 1, 1, 1),
            "alpha must be a number above 0",
        ),
        (
            lambda: theory.stochastic_sparse_descent_bound(1, 1, 1, math.nan, 1, 1),
            "innovation must be a number",
        ),
        (
            lambda: theory.stochastic_sparse_potential(1, 1, 0.1, 1, 0, 1, 1),
            "omega must be a number above 0",
        ),
        (lambda: theory.max_alpha_stochastic_sparse(1, 2, 1, 0), "devices must be at least 1"),
        (
            lambda: theory.max_alpha_stochastic_sparse(1, 2, 0, 1),
            "rho must be above 0 and at most 1",
        ),
        (
            lambda: theory.memory_contraction(0.5, 3),
            "eta must be above 0 and below .* = 0.5, not 0.5",
        ),
        (lambda: theory.max_alpha_stochastic_sparse(0, 2, 1, 1), "L must be a number above 0"),
    ],
)
def test_invalid_argument_is_named(call, named):
    with pytest.raises(ValueError, match=named):
        call()
