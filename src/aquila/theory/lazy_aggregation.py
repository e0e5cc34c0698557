"""Convergence constants of AQUILA (arXiv 2308.00258), with the paper's errors corrected.

Notation: f is the average of the devices' losses f_m; L and L_m are the smoothness constants. v_m
is a device's innovation, Δq_m its quantized form, and ε_m = v_m - Δq_m. ε is the average of all
ε_m. Φ is the sum of Δq_m over the devices that skip, divided by M. Arguments are squared norms:
`gradient` is ||∇f(θᵏ)||², `step` ||θᵏ⁺¹ - θᵏ||² and `drift` ||θᵏ - θᵏ⁻¹||². Derivations:
docs/theory.md.
"""

import math
from collections.abc import Collection, Sequence

import torch

from aquila.core.vector import Vector, squared_norm
from aquila.theory.checks import (
    require,
    require_alpha,
    require_beta,
    require_epsilon,
    require_gamma,
    require_mu,
    require_nonnegative,
    require_smoothness,
    require_step_size,
)

TIGHT_CONTRACTION = 15 / 49
"""Largest ||ε_m|| / ||v_m|| under the level rule "tight", in any dimension."""


def max_beta(alpha: float, L: float, gamma: float = 1.0) -> float:
    """Return the largest β with L/2 - 1/(2α) + βγ/α <= 0 (Corollary 1): (1 - αL) / (2γ).

    The paper's example (α = 0.1, β = 0.25, γ = 2, L = 2.5) violates it: the bound is β <= 0.1875.
    """
    require_step_size(alpha, L)
    require_gamma(gamma)
    return (1 - alpha * L) / (2 * gamma)


def max_beta_pl(alpha: float, L: float, mu: float, gamma: float = 1.0) -> float:
    """Return the largest β with βγ/α <= (1 - αμ)(1/(2α) - L/2) (Theorem 3, PL condition)."""
    require_mu(mu, L)
    return (1 - alpha * mu) * max_beta(alpha, L, gamma)


def omega_1(gap: float, drift: float, alpha: float, beta: float, gamma: float = 1.0) -> float:
    """Return ω₁ of Corollary 1: f(θ¹) - f* + (βγ/α) ||θ¹ - θ⁰||²."""
    require_alpha(alpha)
    require_beta(beta)
    require_gamma(gamma)
    require_nonnegative(gap=gap, drift=drift)
    return gap + beta * gamma / alpha * drift


def omega_1_pl(gap: float, drift: float, alpha: float, L: float) -> float:
    """Return ω₁ of Theorem 3: f(θ¹) - f* + (1/(2α) - L/2) ||θ¹ - θ⁰||²."""
    require_step_size(alpha, L)
    require_nonnegative(gap=gap, drift=drift)
    return gap + (1 / alpha - L) / 2 * drift


def rounds_to_gradient(epsilon: float, omega: float, alpha: float) -> int:
    """Return the smallest K with min ||∇f||² <= ε² over K rounds (Corollary 1): K >= 2ω / (αε²).

    With ω from `omega_1` the rounds are 1 to K. In each of them Assumption 3 must hold and at least
    one device must skip; the paper's extension to rounds without a skip is wrong. With ω from
    `potential` the rounds start at 0, and neither condition is needed.
    """
    require_alpha(alpha)
    require_epsilon(epsilon)
    require_nonnegative(omega=omega)
    return math.ceil(2 * omega / (alpha * epsilon**2))


def rounds_to_gap(epsilon: float, omega: float, alpha: float, mu: float) -> int:
    """Return the smallest K with (1 - αμ)ᴷ ω <= ε (Theorem 3): K >= log(ω/ε) / -log(1 - αμ).

    After K more rounds f - f* is at most ε. The conditions are those of `rounds_to_gradient`.
    """
    require_alpha(alpha)
    require_epsilon(epsilon)
    require_nonnegative(omega=omega)
    require(0 < alpha * mu < 1, f"mu must be above 0 and below 1/alpha = {1 / alpha:g}, not {mu}")
    log_ratio = math.log(max(omega / epsilon, 1))
    return math.ceil(log_ratio / -math.log1p(-alpha * mu))


def measured_gamma(errors: Sequence[Vector], skipped: Collection[int]) -> float | None:
    """Return the smallest γ >= 1 for which Assumption 3 holds in a round; None without skips.

    `errors` are all ε_m, `skipped` the devices in M_c. The result is infinite if the devices that
    skip have no error but others do; the paper excludes this case. Lemma 3 needs γ >= 1.
    """
    if not skipped:
        return None
    total = squared_norm(torch.stack(list(errors)).sum(0))
    omitted = squared_norm(torch.stack([errors[m] for m in skipped]).sum(0))
    if omitted == 0:
        return 1.0 if total == 0 else math.inf
    return max(1.0, total / omitted)


def descent_bound(alpha: float, L: float, gradient: float, deviation: float, step: float) -> float:
    """Bound f(θᵏ⁺¹) - f(θᵏ) in any round, for any α, without Assumption 3 (proof of Lemma 2).

    `deviation` is ||ε + Φ||². The bound is
    -α/2 ||∇f||² + α/2 ||ε + Φ||² + (L/2 - 1/(2α)) ||θᵏ⁺¹ - θᵏ||².
    """
    require_alpha(alpha)
    require_smoothness(L)
    require_nonnegative(gradient=gradient, deviation=deviation, step=step)
    return alpha / 2 * (deviation - gradient) + (L - 1 / alpha) / 2 * step


def descent_bound_skips(
    alpha: float, L: float, gradient: float, step: float, drift: float, beta: float, gamma: float
) -> float:
    """Bound f(θᵏ⁺¹) - f(θᵏ) in a round with skips where Assumption 3 holds (Theorem 2).

    The bound is -α/2 ||∇f||² + (L/2 - 1/(2α)) ||θᵏ⁺¹ - θᵏ||² + (βγ/α) ||θᵏ - θᵏ⁻¹||².
    """
    require_beta(beta)
    require_gamma(gamma)
    require_nonnegative(drift=drift)
    return descent_bound(alpha, L, gradient, 0.0, step) + beta * gamma / alpha * drift


def descent_bound_no_skips(
    alpha: float, L: float, gradient: float, error: float, p: float = 1.0
) -> float:
    """Bound f(θᵏ⁺¹) - f(θᵏ) in a round without skips; `error` is ||ε||².

    Equation (36) of Corollary 2 bounds a term with a negative factor from above by Young's
    inequality. A lower bound is needed: ||a + b||² >= (1 - p) ||a||² + (1 - 1/p) ||b||² for
    0 < p <= 1. The result keeps an error term:
    -α/2 (1 + (1 - αL)(1 - p)) ||∇f||² + α/2 (1 + (1 - αL)(1/p - 1)) ||ε||².
    """
    require_alpha(alpha)
    require_smoothness(L)
    require(alpha * L <= 1, f"alpha must be at most 1/L = {1 / L:g}, not {alpha}")
    require(0 < p <= 1, f"p must be above 0 and at most 1, not {p}")
    require_nonnegative(gradient=gradient, error=error)
    slack = 1 - alpha * L
    descent = (1 + slack * (1 - p)) * gradient
    return alpha / 2 * ((1 + slack * (1 / p - 1)) * error - descent)


def max_beta_contracting(
    alpha: float, L: float, L_max: float, delta: float = TIGHT_CONTRACTION, mu: float = 0.0
) -> float:
    """Return the largest β if ||ε_m|| <= δ ||v_m|| with δ < 1 replaces Assumption 3.

    It is (1 - δ - αμ)(1 - αL) / 2, provided that α²L_max² δ² <= (1 - δ)(1 - δ - αμ)(1 - αL). L_max
    is the largest L_m. The potential then falls by at least α/2 ||∇f||² in every round, with or
    without skips. Under PL with this μ a round multiplies it by at most 1 - αμ.
    """
    require_step_size(alpha, L)
    require(0 < L_max < math.inf, f"L_max must be a number above 0, not {L_max}")
    margin = _contraction_margin(alpha, delta, mu) * (1 - alpha * L)
    needed, allowed = (alpha * L_max * delta) ** 2, (1 - delta) * margin
    require(
        needed <= allowed,
        f"alpha must be smaller: (alpha L_max delta)^2 is {needed:g} and must be at most "
        f"(1 - delta)(1 - delta - alpha mu)(1 - alpha L) = {allowed:g}",
    )
    return margin / 2


def potential(
    gap: float, memory_error: float, alpha: float, delta: float = TIGHT_CONTRACTION, mu: float = 0.0
) -> float:
    """Return the potential f(θᵏ) - f* + α / (2(1 - δ - αμ)) G.

    `memory_error` is G, the average of ||∇f_m(θᵏ) - q_m||². q_m is the memory that the step from θᵏ
    uses, including the uploads of round k. At k = 0 the potential replaces ω₁ in
    `rounds_to_gradient` and `rounds_to_gap`.
    """
    require_alpha(alpha)
    require_nonnegative(gap=gap, memory_error=memory_error)
    return gap + alpha / (2 * _contraction_margin(alpha, delta, mu)) * memory_error


def _contraction_margin(alpha: float, delta: float, mu: float) -> float:
    require(0 <= delta < 1, f"delta must be at least 0 and below 1, not {delta}")
    limit = (1 - delta) / alpha
    require(
        0 <= mu < limit, f"mu must be at least 0 and below (1-delta)/alpha = {limit:g}, not {mu}"
    )
    return 1 - delta - alpha * mu
