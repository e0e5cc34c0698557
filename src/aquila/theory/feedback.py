"""Constants of AQUILA-Zero, error feedback with a memory; docs/beyond.md has the derivations."""

import math

from aquila.theory.demands import demand, demand_alpha, demand_sizes, demand_smoothness

SPARSE_CONTRACTION = 5 / 9
"""Share of its energy that a coordinate which AQUILA-Zero sends loses at least."""


def feedback_descent_bound(alpha: float, L: float, gradient: float, debt: float) -> float:
    """Bound on f(xᵏ⁺¹) - f(xᵏ) with error feedback; x = θ - α ē, `debt` is ||ē||².

    ē is the average of what the devices owe before the round. x moves by exactly -α ∇f(θ), whatever
    the quantizer and the memories do, hence -α/2 (1 - αL) ||∇f(θ)||² + α³L²/2 ||ē||².
    """
    demand_alpha(alpha)
    demand_smoothness(L)
    demand_sizes(gradient=gradient, debt=debt)
    return -alpha / 2 * (1 - alpha * L) * gradient + alpha**3 * L**2 / 2 * debt


def feedback_potential(gap: float, debt: float, alpha: float, L: float, delta: float) -> float:
    """f(x) - f* + α³L²/δ E, where `debt` is E, the average of ||e_m||².

    If ||v - Q(v)||² <= (1 - δ) ||v||², a round changes it by -α/2 (1 - αL) ||∇f(θ)||² + 2α³L²/δ² H
    or less, H being the average of ||∇f_m(θ) - q_m||².
    """
    demand_alpha(alpha)
    demand_smoothness(L)
    _demand_share(delta)
    demand_sizes(gap=gap, debt=debt)
    return gap + alpha**3 * L**2 / delta * debt


def max_alpha_feedback(L: float, delta: float, B: float = 1.0) -> float:
    """Largest α with αL + 4 (αLB/δ)² <= 1/2, where H <= B² ||∇f||² + G².

    Then the average of ||∇f(θ)||² over K rounds is at most 4 Ψ⁰/(αK) + 8 (αL/δ)² G².
    """
    demand_smoothness(L)
    _demand_share(delta)
    demand(0 < B < math.inf, f"B must be a number above 0, not {B}")
    slope = 4 * (B / delta) ** 2
    return (math.sqrt(1 + 2 * slope) - 1) / (2 * slope) / L


def _demand_share(delta: float) -> None:
    demand(0 < delta <= 1, f"delta must be above 0 and at most 1, not {delta}")
