"""Check every inequality in docs/our-methods-local-steps.md on quadratic losses.

A minibatch gradient is the gradient plus or minus a fixed vector. A device with τ steps then has
2^τ equally likely rounds. So expectations over minibatches and dither are sums, none is estimated.
"""

import itertools
from functools import cached_property

import numpy as np
import pytest
import torch

import aquila
from aquila import theory
from aquila.core.quantize import stochastic_sparse
from helpers.problems import ridge

DENSITY, M, STEPS, DIMENSION = 0.25, 6, 3, 24
OMEGA = 1 / DENSITY
PROBLEM = ridge(devices=M, dimension=DIMENSION, rows=30)
HESSIANS = np.stack(
    [(A.T @ A / len(A)).numpy() + PROBLEM.weight * np.eye(DIMENSION) for A in PROBLEM.blocks]
)
L = max(np.linalg.eigvalsh(hessian).max() for hessian in HESSIANS)
PATTERNS = np.array(list(itertools.product((-1.0, 1.0), repeat=STEPS)))


def gradient_of(m, theta):
    return PROBLEM.local(m, torch.from_numpy(theta))[1].numpy()


class Round:
    """All equally likely rounds of every device from one model, and their expectations."""

    def __init__(self, theta, alpha, noise, memory=None):
        self.theta, self.alpha, self.noise = theta, alpha, noise
        self.q = np.zeros((M, DIMENSION)) if memory is None else memory
        self.gradients = np.stack([gradient_of(m, theta) for m in range(M)])
        full = self.gradients.mean(0)
        self.gradient = full @ full
        self.zeta2 = ((self.gradients - full) ** 2).sum(1).mean()
        self.changes = np.empty((M, len(PATTERNS), DIMENSION))
        drifts = []
        for m, (index, signs) in itertools.product(range(M), enumerate(PATTERNS)):
            y = theta.copy()
            for sign in signs:
                drifts.append(((theta - y) ** 2).sum())
                y = y - alpha * (gradient_of(m, y) + sign * noise)
            self.changes[m, index] = (theta - y) / alpha
        self.drift = np.mean(drifts)

    @property
    def facts(self):
        sigma2 = float(self.noise @ self.noise)
        return theory.LocalTrainingFacts(self.alpha, STEPS, L, sigma2, float(self.zeta2))

    @cached_property
    def innovations(self):
        return self.changes - self.q[:, None]

    @property
    def innovation(self):
        return (self.innovations**2).sum(2).mean()

    @cached_property
    def variance(self):
        """Variance of each coordinate of each possible upload over the dither."""
        step = np.sqrt((self.innovations**2).mean(2, keepdims=True)) / DENSITY
        part = np.abs(self.innovations) / step % 1
        return step**2 * part * (1 - part)

    def next_loss(self):
        """E f after the round: the loss of the mean model plus what the covariance adds."""
        hessian = HESSIANS.mean(0)
        moved = torch.from_numpy(self.theta - self.alpha * self.changes.mean((0, 1)))
        dither = self.variance.mean(1).sum(0) @ np.diag(hessian)
        centered = self.changes - self.changes.mean(1, keepdims=True)
        minibatches = np.einsum("mpi,ij,mpj->", centered, hessian, centered) / len(PATTERNS)
        return PROBLEM.loss(moved) + self.alpha**2 / 2 * (dither + minibatches) / M**2

    def loss(self):
        return PROBLEM.loss(torch.from_numpy(self.theta))


def rounds(rate, memory=False):
    """Rounds from models far from and near the optimum, with and without minibatch noise."""
    rng = np.random.default_rng(0)
    alpha = rate / (STEPS * L)
    optimum = PROBLEM.optimum().numpy()
    for distance, sigma in itertools.product((0.0, 0.1, 3.0), (0.0, 0.3)):
        theta = optimum + distance * rng.standard_normal(DIMENSION)
        noise = sigma * rng.standard_normal(DIMENSION)
        memories = STEPS * rng.standard_normal((M, DIMENSION)) if memory else None
        yield Round(theta, alpha, noise, memories)


@pytest.mark.parametrize("rate", [0.01, 0.25])
def test_local_models_stay_close(rate):
    for seen in rounds(rate):
        assert seen.drift <= theory.local_drift_bound(seen.facts, seen.gradient)


@pytest.mark.parametrize("memory", [False, True], ids=["no memory", "memory"])
@pytest.mark.parametrize("rate", [0.01, 0.25])
def test_expected_descent_is_within_the_bound(rate, memory):
    for seen in rounds(rate, memory):
        bound = theory.local_descent_bound(seen.facts, seen.gradient, seen.innovation, OMEGA, M)
        assert seen.next_loss() - seen.loss() <= bound


@pytest.mark.parametrize("rate", [0.01, 0.25])
def test_innovation_without_a_memory_is_within_the_bound(rate):
    for seen in rounds(rate):
        assert seen.innovation <= theory.local_innovation_bound(seen.facts, seen.gradient)


def test_variance_is_that_of_the_quantizer():
    """The closed form that these tests use, against draws of the real quantizer."""
    v = torch.from_numpy(next(rounds(0.25)).innovations[0, 0])
    generator = torch.Generator().manual_seed(0)
    draws = []
    for _ in range(4000):
        dither = torch.rand(DIMENSION, generator=generator, dtype=torch.float64)
        codes = stochastic_sparse(v, DENSITY, dither)  # None: every coordinate is zero
        draws.append(np.zeros(DIMENSION) if codes is None else codes.decode().numpy())
    variance = next(rounds(0.25)).variance[0, 0]
    assert np.var(draws, axis=0).sum() == pytest.approx(variance.sum(), rel=0.05)
    assert np.mean(draws, axis=0) == pytest.approx(v.numpy(), abs=0.1 * float(v.norm()))


def test_mean_gradient_of_runs_is_within_the_bound():
    """The mean over a run of the real method, with one full gradient per local step."""
    alpha = theory.local_steps.MAX_NOISE_RATE * M / OMEGA / (STEPS * L)

    def device(m):
        def local(theta):
            y = theta.clone()
            for _ in range(STEPS):
                y -= alpha * PROBLEM.local(m, y)[1]
            return 0.0, (theta - y) / alpha

        return local

    method = aquila.create("aquila_dither", alpha=alpha, density=DENSITY, memory="none")
    start = torch.zeros(DIMENSION, dtype=torch.float64)
    simulation = aquila.Simulation(method, start, [device(m) for m in range(M)])
    seen = []
    for _ in range(60):
        seen.append(Round(simulation.theta.numpy().copy(), alpha, np.zeros(DIMENSION)))
        simulation.advance()
    facts = theory.LocalTrainingFacts(alpha, STEPS, L, 0.0, max(s.zeta2 for s in seen))
    gap = seen[0].loss() - PROBLEM.loss(PROBLEM.optimum())
    bound = theory.local_gradient_bound(facts, gap, len(seen), OMEGA, M)
    assert np.mean([s.gradient for s in seen]) <= bound


def test_bounds_by_hand():
    facts = theory.LocalTrainingFacts(alpha=0.1, steps=2, L=1.0, sigma2=3.0, zeta2=5.0)
    assert theory.local_drift_bound(facts, 7.0) == pytest.approx(2 * 0.01 * (6 + 4 * 12))
    assert theory.local_innovation_bound(facts, 7.0) == pytest.approx(18 + 20 * 12)
    descent = -7 / 16 * 0.2 * 7 + 0.001 * 4 * 13 + 0.01 * 2 * 3 / 4 + 0.01 * 8 / 8 * 9
    assert theory.local_descent_bound(facts, 7.0, 9.0, 8.0, 4) == pytest.approx(descent)
    bound = 3 * 10 / 0.2 / 5 + (0.3 * (1 + 3) / 16 + 0.06) * 3 + (3 * 0.04 + 7.5 * 0.025) * 5
    assert theory.local_gradient_bound(facts, 10.0, 5, 2.0, 16) == pytest.approx(bound)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: theory.LocalTrainingFacts(0.1, 0, 1), "steps must be at least 1, not 0"),
        (lambda: theory.LocalTrainingFacts(0.1, 5, 1), r"alpha \* steps \* L must be at most 1/4"),
        (lambda: theory.LocalTrainingFacts(0.1, 1, 1, -1), "sigma2 must be a number"),
        (
            lambda: theory.local_gradient_bound(theory.LocalTrainingFacts(0.1, 2, 1), 1, 1, 8, 4),
            "omega / devices must be at most 1/24, not 0.4",
        ),
        (
            lambda: theory.local_descent_bound(theory.LocalTrainingFacts(0.1, 1, 1), 1, 1, 0, 1),
            "omega must be a number above 0",
        ),
    ],
)
def test_invalid_argument_is_named(call, named):
    with pytest.raises(ValueError, match=named):
        call()
