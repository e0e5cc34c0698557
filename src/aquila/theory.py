"""Convergence constants of AQUILA (arXiv 2308.00258), with the paper's errors corrected.

Names: f is the average of the devices' losses f_m; L and L_m are their smoothness constants; v_m is
a device's innovation, Δq_m what the quantizer makes of it, ε_m = v_m - Δq_m; ε is the average of
all ε_m, Φ the sum of the skippers' Δq_m divided by M. Arguments that stand for a size are squared
norms: `gradient` is ||∇f(θᵏ)||², `step` ||θᵏ⁺¹ - θᵏ||², `drift` ||θᵏ - θᵏ⁻¹||².
docs/theory.md has the derivations.
"""

import math
from collections.abc import Collection, Sequence

import torch

from aquila.core.vector import Vector, squared_norm

TIGHT_CONTRACTION = 15 / 49
"""Largest ||ε_m|| / ||v_m|| that the level rule "tight" allows, in any dimension."""

SPARSE_CONTRACTION = 5 / 9
"""Share of its energy that a coordinate which AQUILA-Zero sends loses at least."""


def max_beta(alpha: float, L: float, gamma: float = 1.0) -> float:
    """Largest β with L/2 - 1/(2α) + βγ/α <= 0 (Corollary 1): (1 - αL) / (2γ).

    The paper's own example (α = .1, β = .25, γ = 2, L = 2.5) is outside: it allows β <= 0.1875.
    """
    _demand_step(alpha, L)
    _demand_gamma(gamma)
    return (1 - alpha * L) / (2 * gamma)


def max_beta_pl(alpha: float, L: float, mu: float, gamma: float = 1.0) -> float:
    """Largest β with βγ/α <= (1 - αμ)(1/(2α) - L/2) (Theorem 3, PL condition)."""
    _demand_mu(mu, L)
    return (1 - alpha * mu) * max_beta(alpha, L, gamma)


def omega_1(gap: float, drift: float, alpha: float, beta: float, gamma: float = 1.0) -> float:
    """ω₁ of Corollary 1: f(θ¹) - f* + (βγ/α) ||θ¹ - θ⁰||²."""
    _demand_alpha(alpha)
    _demand_beta(beta)
    _demand_gamma(gamma)
    _demand_sizes(gap=gap, drift=drift)
    return gap + beta * gamma / alpha * drift


def omega_1_pl(gap: float, drift: float, alpha: float, L: float) -> float:
    """ω₁ of Theorem 3: f(θ¹) - f* + (1/(2α) - L/2) ||θ¹ - θ⁰||²."""
    _demand_step(alpha, L)
    _demand_sizes(gap=gap, drift=drift)
    return gap + (1 / alpha - L) / 2 * drift


def rounds_to_gradient(epsilon: float, omega: float, alpha: float) -> int:
    """Least K with min ||∇f||² <= ε² over K rounds (Corollary 1): K >= 2ω / (αε²).

    With `omega_1` the rounds are 1 to K, Assumption 3 must hold in each, and somebody must skip in
    each; the paper's step to rounds without a skip is wrong. With `potential` they start at 0 and
    neither is needed.
    """
    _demand_alpha(alpha)
    _demand_target(epsilon)
    _demand_sizes(omega=omega)
    return math.ceil(2 * omega / (alpha * epsilon**2))


def rounds_to_gap(epsilon: float, omega: float, alpha: float, mu: float) -> int:
    """Least K with (1 - αμ)ᴷ ω <= ε (Theorem 3): K >= log(ω/ε) / -log(1 - αμ).

    After K more rounds f - f* is at most ε. What must hold in them is as in `rounds_to_gradient`.
    """
    _demand_alpha(alpha)
    _demand_target(epsilon)
    _demand_sizes(omega=omega)
    _demand(0 < alpha * mu < 1, f"mu must be above 0 and below 1/alpha = {1 / alpha:g}, not {mu}")
    folds = math.log(max(omega / epsilon, 1))
    return math.ceil(folds / -math.log1p(-alpha * mu))


def measured_gamma(errors: Sequence[Vector], skipped: Collection[int]) -> float | None:
    """Return the least γ >= 1 for which Assumption 3 holds in a round; None if nobody skipped.

    `errors` are all ε_m, `skipped` the devices in M_c. Infinite if the skippers have no error but
    others do: the paper notes the case and sets it aside. Lemma 3 needs γ >= 1.
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

    -α/2 ||∇f||² + α/2 ||ε + Φ||² + (L/2 - 1/(2α)) ||θᵏ⁺¹ - θᵏ||²; `deviation` is ||ε + Φ||².
    """
    _demand_alpha(alpha)
    _demand_smoothness(L)
    _demand_sizes(gradient=gradient, deviation=deviation, step=step)
    return alpha / 2 * (deviation - gradient) + (L - 1 / alpha) / 2 * step


def descent_bound_skips(
    alpha: float, L: float, gradient: float, step: float, drift: float, beta: float, gamma: float
) -> float:
    """Theorem 2: the bound in a round with skips in which Assumption 3 holds with this γ.

    -α/2 ||∇f||² + (L/2 - 1/(2α)) ||θᵏ⁺¹ - θᵏ||² + (βγ/α) ||θᵏ - θᵏ⁻¹||².
    """
    _demand_beta(beta)
    _demand_gamma(gamma)
    _demand_sizes(drift=drift)
    return descent_bound(alpha, L, gradient, 0.0, step) + beta * gamma / alpha * drift


def descent_bound_no_skips(
    alpha: float, L: float, gradient: float, error: float, p: float = 1.0
) -> float:
    """Bound the change of f in a round in which nobody skips; `error` is ||ε||².

    Equation (36) of Corollary 2 bounds a term with a negative factor by Young's inequality from
    above. It must be ||a + b||² >= (1 - p) ||a||² + (1 - 1/p) ||b||², 0 < p <= 1, which gives
    -α/2 (1 + (1 - αL)(1 - p)) ||∇f||² + α/2 (1 + (1 - αL)(1/p - 1)) ||ε||²: the error stays.
    """
    _demand_alpha(alpha)
    _demand_smoothness(L)
    _demand(alpha * L <= 1, f"alpha must be at most 1/L = {1 / L:g}, not {alpha}")
    _demand(0 < p <= 1, f"p must be above 0 and at most 1, not {p}")
    _demand_sizes(gradient=gradient, error=error)
    slack = 1 - alpha * L
    descent = (1 + slack * (1 - p)) * gradient
    return alpha / 2 * ((1 + slack * (1 / p - 1)) * error - descent)


def max_beta_contracting(
    alpha: float, L: float, L_max: float, delta: float = TIGHT_CONTRACTION, mu: float = 0.0
) -> float:
    """Largest β of the statement that replaces Assumption 3 by ||ε_m|| <= δ ||v_m||, δ < 1.

    (1 - δ - αμ)(1 - αL) / 2, provided that α²L_max² δ² <= (1 - δ)(1 - δ - αμ)(1 - αL), where L_max
    is the largest L_m. Then the potential falls by α/2 ||∇f||² or more in every round, skips or
    not, and under PL with this μ to 1 - αμ times its value or less.
    """
    _demand_step(alpha, L)
    _demand(0 < L_max < math.inf, f"L_max must be a number above 0, not {L_max}")
    room = _room(alpha, delta, mu) * (1 - alpha * L)
    needed, allowed = (alpha * L_max * delta) ** 2, (1 - delta) * room
    _demand(
        needed <= allowed,
        f"alpha must be smaller: (alpha L_max delta)^2 is {needed:g} and must be at most "
        f"(1 - delta)(1 - delta - alpha mu)(1 - alpha L) = {allowed:g}",
    )
    return room / 2


def potential(
    gap: float, memory_error: float, alpha: float, delta: float = TIGHT_CONTRACTION, mu: float = 0.0
) -> float:
    """f(θᵏ) - f* + α / (2(1 - δ - αμ)) G, where G is the average of ||∇f_m(θᵏ) - q_m||².

    q_m is the memory that the step from θᵏ uses, the uploads of round k included. At k = 0 the
    potential takes the place of ω₁ in `rounds_to_gradient` and `rounds_to_gap`.
    """
    _demand_alpha(alpha)
    _demand_sizes(gap=gap, memory_error=memory_error)
    return gap + alpha / (2 * _room(alpha, delta, mu)) * memory_error


def feedback_descent_bound(alpha: float, L: float, gradient: float, debt: float) -> float:
    """Bound on f(xᵏ⁺¹) - f(xᵏ) with error feedback; x = θ - α ē, `debt` is ||ē||².

    ē is the average of what the devices owe before the round. x moves by exactly -α ∇f(θ), whatever
    the quantizer and the memories do, hence -α/2 (1 - αL) ||∇f(θ)||² + α³L²/2 ||ē||².
    """
    _demand_alpha(alpha)
    _demand_smoothness(L)
    _demand_sizes(gradient=gradient, debt=debt)
    return -alpha / 2 * (1 - alpha * L) * gradient + alpha**3 * L**2 / 2 * debt


def feedback_potential(gap: float, debt: float, alpha: float, L: float, delta: float) -> float:
    """f(x) - f* + α³L²/δ E, where `debt` is E, the average of ||e_m||².

    If ||v - Q(v)||² <= (1 - δ) ||v||², a round changes it by -α/2 (1 - αL) ||∇f(θ)||² + 2α³L²/δ² H
    or less, H being the average of ||∇f_m(θ) - q_m||².
    """
    _demand_alpha(alpha)
    _demand_smoothness(L)
    _demand_share(delta)
    _demand_sizes(gap=gap, debt=debt)
    return gap + alpha**3 * L**2 / delta * debt


def max_alpha_feedback(L: float, delta: float, B: float = 1.0) -> float:
    """Largest α with αL + 4 (αLB/δ)² <= 1/2, where H <= B² ||∇f||² + G².

    Then the average of ||∇f(θ)||² over K rounds is at most 4 Ψ⁰/(αK) + 8 (αL/δ)² G².
    """
    _demand_smoothness(L)
    _demand_share(delta)
    _demand(0 < B < math.inf, f"B must be a number above 0, not {B}")
    slope = 4 * (B / delta) ** 2
    return (math.sqrt(1 + 2 * slope) - 1) / (2 * slope) / L


def lottery_descent_bound(
    alpha: float, L: float, gradient: float, news: float, omega: float, devices: int
) -> float:
    """Bound on E f(θᵏ⁺¹) - f(θᵏ) with unbiased uploads; `news` is H, the average of ||g_m - q_m||².

    If E||Q(v) - v||² <= ω ||v||², as with ω = 1/share in AQUILA-Lots, and the M devices draw
    independently: -α (1 - αL/2) ||∇f||² + α²Lω/(2M) H.
    """
    _demand_alpha(alpha)
    _demand_smoothness(L)
    _demand_lottery(omega, devices)
    _demand_sizes(gradient=gradient, news=news)
    noise = alpha**2 * L * omega / (2 * devices) * news
    return -alpha * (1 - alpha * L / 2) * gradient + noise


def memory_learning(eta: float, omega: float) -> float:
    """Share ρ = 2η - η² (1 + ω) of ||g - q||² that a memory learns in a round on average.

    Above 0 for η < 2 / (1 + ω), and largest, 1 / (1 + ω), at half of that.
    """
    _demand_omega(omega)
    limit = 2 / (1 + omega)
    _demand(0 < eta < limit, f"eta must be above 0 and below 2/(1+omega) = {limit:g}, not {eta}")
    return 2 * eta - eta**2 * (1 + omega)


def lottery_potential(
    gap: float, news: float, alpha: float, L: float, omega: float, rho: float, devices: int
) -> float:
    """f(θ) - f* + 2α²Lω/(ρM) H, with ρ from `memory_learning`.

    With α from `max_alpha_lottery` a round lowers it by α/2 ||∇f(θ)||² or more on average, so that
    the average of ||∇f||² over K rounds is at most 2 Ψ⁰/(αK). L bounds the smoothness of every f_m.
    """
    _demand_alpha(alpha)
    _demand_smoothness(L)
    _demand_lottery(omega, devices)
    _demand_rho(rho)
    _demand_sizes(gap=gap, news=news)
    return gap + 2 * alpha**2 * L * omega / (rho * devices) * news


def max_alpha_lottery(L: float, omega: float, rho: float, devices: int) -> float:
    """Largest α with αL <= 1/2 and αL <= ρ √(M / (12 ω))."""
    _demand_smoothness(L)
    _demand_lottery(omega, devices)
    _demand_rho(rho)
    return min(0.5, rho * math.sqrt(devices / (12 * omega))) / L


def _demand_share(delta: float) -> None:
    _demand(0 < delta <= 1, f"delta must be above 0 and at most 1, not {delta}")


def _demand_lottery(omega: float, devices: int) -> None:
    _demand_omega(omega)
    _demand(devices >= 1, f"devices must be at least 1, not {devices}")


def _demand_omega(omega: float) -> None:
    _demand(0 < omega < math.inf, f"omega must be a number above 0, not {omega}")


def _demand_rho(rho: float) -> None:
    _demand(0 < rho <= 1, f"rho must be above 0 and at most 1, not {rho}")


def _room(alpha: float, delta: float, mu: float) -> float:
    _demand(0 <= delta < 1, f"delta must be at least 0 and below 1, not {delta}")
    limit = (1 - delta) / alpha
    _demand(
        0 <= mu < limit, f"mu must be at least 0 and below (1-delta)/alpha = {limit:g}, not {mu}"
    )
    return 1 - delta - alpha * mu


def _demand(condition: bool, sentence: str) -> None:
    if not condition:
        raise ValueError(sentence)


def _demand_alpha(alpha: float) -> None:
    _demand(0 < alpha < math.inf, f"alpha must be a number above 0, not {alpha}")


def _demand_smoothness(L: float) -> None:
    _demand(0 < L < math.inf, f"L must be a number above 0, not {L}")


def _demand_step(alpha: float, L: float) -> None:
    _demand_alpha(alpha)
    _demand_smoothness(L)
    _demand(
        alpha * L < 1, f"alpha must be below 1/L = {1 / L:g} to leave room for beta, not {alpha}"
    )


def _demand_mu(mu: float, L: float) -> None:
    _demand(0 < mu <= L, f"mu must be above 0 and at most L = {L:g}, not {mu}")


def _demand_beta(beta: float) -> None:
    _demand(0 <= beta < math.inf, f"beta must be a number from 0 on, not {beta}")


def _demand_gamma(gamma: float) -> None:
    _demand(1 <= gamma < math.inf, f"gamma must be a number from 1 on, not {gamma}")


def _demand_target(epsilon: float) -> None:
    _demand(0 < epsilon < math.inf, f"epsilon must be a number above 0, not {epsilon}")


def _demand_sizes(**sizes: float) -> None:
    for name, size in sizes.items():
        _demand(0 <= size < math.inf, f"{name} must be a number from 0 on, not {size}")
