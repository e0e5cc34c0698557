"""The convergence constants of AQUILA against numbers computed by hand."""

import math

import pytest
import torch

from aquila import theory
from aquila.core.innovation import aquila_level, measure
from aquila.core.quantize import midrise

# the constants


def test_max_beta_makes_the_condition_of_corollary_1_an_equality():
    alpha, L, gamma = 0.2, 3.0, 1.7
    beta = theory.max_beta(alpha, L, gamma)
    assert L / 2 - 1 / (2 * alpha) + beta * gamma / alpha == pytest.approx(0)


def test_max_beta_pl_makes_the_condition_of_theorem_3_an_equality():
    alpha, L, mu, gamma = 0.2, 3.0, 0.5, 1.7
    beta = theory.max_beta_pl(alpha, L, mu, gamma)
    right = (1 - alpha * mu) * (1 / (2 * alpha) - L / 2)
    assert beta * gamma / alpha == pytest.approx(right)
    assert beta < theory.max_beta(alpha, L, gamma)


def test_example_in_the_paper_violates_the_papers_condition():
    p, alpha, beta, gamma, L = 0.1, 0.1, 0.25, 2.0, 2.5
    assert (alpha * L - 1) * (1 + 1 / p) + 2 <= 0  # its condition on p holds
    assert L / 2 - 1 / (2 * alpha) + beta * gamma / alpha == pytest.approx(1.25)
    assert beta > theory.max_beta(alpha, L, gamma) == pytest.approx(0.1875)


def test_no_step_size_allows_the_papers_beta_for_wikitext():
    assert all(theory.max_beta(alpha, 1.0) < 0.5 < 1.25 for alpha in (0.999, 0.5, 0.1, 1e-6))


def test_omega_1_adds_the_first_step_to_the_gap():
    assert theory.omega_1(3.0, drift=0.5, alpha=0.1, beta=0.2, gamma=2.0) == pytest.approx(5.0)
    assert theory.omega_1_pl(3.0, drift=0.5, alpha=0.1, L=2.0) == pytest.approx(5.0)


def test_rounds_to_gradient_is_the_smallest_sufficient_number():
    omega, alpha, epsilon = 1.3, 0.3, 0.07
    K = theory.rounds_to_gradient(epsilon, omega, alpha)
    assert 2 * omega / (alpha * K) <= epsilon**2 < 2 * omega / (alpha * (K - 1))


def test_rounds_to_gap_is_the_smallest_sufficient_number():
    omega, alpha, mu, epsilon = 1.3, 0.3, 0.2, 1e-4
    K = theory.rounds_to_gap(epsilon, omega, alpha, mu)
    assert (1 - alpha * mu) ** K * omega <= epsilon < (1 - alpha * mu) ** (K - 1) * omega
    assert theory.rounds_to_gap(2.0, omega, alpha, mu) == 0


def test_contracting_beta_is_the_papers_with_gamma_one_over_one_minus_delta():
    alpha, L, delta = 0.1, 2.0, 0.25
    expected = theory.max_beta(alpha, L, gamma=1 / (1 - delta))
    assert theory.max_beta_contracting(alpha, L, 3.0, delta) == pytest.approx(expected)
    assert theory.max_beta_contracting(alpha, L, 3.0, delta, mu=0.5) < expected


def test_potential_adds_the_memory_error_to_the_gap():
    assert theory.potential(1.0, 3.0, alpha=0.5, delta=0.25) == pytest.approx(2.0)
    assert theory.potential(1.0, 3.0, alpha=0.5, delta=0.25, mu=0.5) == pytest.approx(2.5)


def test_descent_bounds_by_hand():
    alpha, L = 0.5, 1.0
    assert theory.descent_bound(alpha, L, gradient=4, deviation=2, step=6) == pytest.approx(-3.5)
    skips = theory.descent_bound_skips(alpha, L, 4, 6, drift=3, beta=0.25, gamma=2)
    assert skips == pytest.approx(-1 - 3 + 3)
    assert theory.descent_bound_no_skips(alpha, L, gradient=4, error=2) == pytest.approx(-0.5)
    # p = 1/2: -1/4 * (1 + 1/4) * 4 + 1/4 * (1 + 1/2) * 2
    assert theory.descent_bound_no_skips(alpha, L, 4, 2, p=0.5) == pytest.approx(-0.5)
    assert theory.descent_bound_no_skips(alpha, L, 4, 0, p=0.5) == pytest.approx(-1.25)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: theory.max_beta(0, 1), "alpha must be a number above 0"),
        (lambda: theory.max_beta(-0.1, 1), "alpha must be a number above 0"),
        (lambda: theory.max_beta(math.nan, 1), "alpha must be a number above 0"),
        (lambda: theory.max_beta(0.1, 0), "L must be a number above 0"),
        (lambda: theory.max_beta(0.5, 2), "alpha must be below 1/L = 0.5"),
        (lambda: theory.max_beta(0.1, 1, gamma=0.9), "gamma must be a number >= 1"),
        (lambda: theory.max_beta(0.1, 1, gamma=math.inf), "gamma must be a number >= 1"),
        (lambda: theory.max_beta_pl(0.1, 1, mu=-1), "mu must be above 0 and at most L = 1"),
        (lambda: theory.max_beta_pl(0.1, 1, mu=2), "mu must be above 0 and at most L = 1"),
        (lambda: theory.omega_1(-1, 0, 0.1, 0.1), "gap must be a number >= 0"),
        (lambda: theory.omega_1(1, 0, 0.1, -0.1), "beta must be a number >= 0"),
        (lambda: theory.omega_1_pl(1, -1, 0.1, 1), "drift must be a number >= 0"),
        (lambda: theory.rounds_to_gradient(0, 1, 0.1), "epsilon must be a number above 0"),
        (lambda: theory.rounds_to_gap(0.1, 1, 0.1, -1), "mu must be above 0 and below 1/alpha"),
        (lambda: theory.rounds_to_gap(0.1, 1, 0.1, 10), "mu must be above 0 and below 1/alpha"),
        (lambda: theory.descent_bound(0.1, 1, math.nan, 0, 0), "gradient must be a number"),
        (lambda: theory.descent_bound_no_skips(2, 1, 1, 1), "alpha must be at most 1/L = 1"),
        (lambda: theory.descent_bound_no_skips(0.1, 1, 1, 1, p=2), "p must be above 0 and at most"),
        (lambda: theory.max_beta_contracting(0.1, 1, 1, delta=1), "delta must be at least 0"),
        (lambda: theory.max_beta_contracting(0.1, 1, 1, mu=9), "mu must be at least 0"),
        (lambda: theory.max_beta_contracting(0.1, 1, 99), "alpha must be smaller"),
        (lambda: theory.max_beta_contracting(0.1, 1, 0), "L_max must be a number above 0"),
    ],
)
def test_invalid_argument_is_named(call, named):
    with pytest.raises(ValueError, match=named):
        call()


# Assumption 3


def vectors(*rows):
    return [torch.tensor(row, dtype=torch.float64) for row in rows]


def test_gamma_compares_all_errors_with_those_of_skipping_devices():
    assert theory.measured_gamma(vectors([3.0, 0.0], [0.0, 1.0]), {1}) == pytest.approx(10)


def test_gamma_is_one_if_all_devices_skip_or_errors_cancel():
    errors = vectors([3.0, 0.0], [-3.0, 1.0])
    assert theory.measured_gamma(errors, {0, 1}) == 1
    assert theory.measured_gamma(errors, {0}) == 1


def test_gamma_is_none_without_skips():
    assert theory.measured_gamma(vectors([3.0, 0.0], [0.0, 1.0]), set()) is None


def test_gamma_is_infinite_if_only_skipping_devices_have_no_error():
    assert theory.measured_gamma(vectors([3.0, 0.0], [0.0, 0.0]), {1}) == math.inf
    assert theory.measured_gamma(vectors([0.0, 0.0], [0.0, 0.0]), {1}) == 1


# the contraction that replaces Assumption 3


@pytest.mark.parametrize("dimension", [1, 2, 3, 50, 3000])
def test_tight_level_rule_contracts_for_every_vector(dimension):
    generator = torch.Generator().manual_seed(dimension)
    for tail in (0.0, 1.0, 3.0, 8.0):
        draw = torch.randn(20, dimension, generator=generator, dtype=torch.float64)
        for v in draw * draw.abs() ** tail:
            codes = midrise(v, aquila_level(measure(v, torch.zeros_like(v)), tightness=7.0))
            ratio = torch.linalg.norm(v - codes.decode()) / torch.linalg.norm(v)
            assert ratio <= theory.TIGHT_CONTRACTION


def test_contraction_of_the_tight_level_rule_is_nearly_attained():
    """Nearly all coordinates lie midway between two of the 8 levels, just below level 4."""
    counts, values = torch.tensor([4300, 5700, 1]), torch.tensor([2 / 7, 4 / 7, 1.0])
    v = values.double().repeat_interleave(counts)
    codes = midrise(v, aquila_level(measure(v, torch.zeros_like(v)), tightness=7.0))
    ratio = torch.linalg.norm(v - codes.decode()) / torch.linalg.norm(v)
    assert 0.99 * theory.TIGHT_CONTRACTION < ratio <= theory.TIGHT_CONTRACTION
