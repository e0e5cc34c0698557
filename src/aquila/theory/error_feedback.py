"""Constants of AQUILA-TopK, error feedback with a memory; proofs: docs/our-methods-proofs.md."""

import math

from aquila.theory.checks import require, require_alpha, require_nonnegative, require_smoothness

SPARSE_CONTRACTION = 5 / 9
"""Lower bound on the fraction of its energy that a sent coordinate loses in AQUILA-TopK."""

RANDOM_ERROR_ENERGY = 43 / 300
"""Expected ||e_m||² of AQUILA-TopK's random initial error × density² ÷ ||v||²."""


def error_feedback_descent_bound(alpha: float, L: float, gradient: float, error: float) -> float:
    """Bound f(xᵏ⁺¹) - f(xᵏ) with error feedback, where x = θ - α ē and `error` is ||ē||².

    ē is the average of the devices' accumulated errors before the round. For every quantizer and
    every memory, x moves by exactly -α ∇f(θ). The bound is
    -α/2 (1 - αL) ||∇f(θ)||² + α³L²/2 ||ē||².
    """
    require_alpha(alpha)
    require_smoothness(L)
    require_nonnegative(gradient=gradient, error=error)
    return -alpha / 2 * (1 - alpha * L) * gradient + alpha**3 * L**2 / 2 * error


def error_feedback_potential(
    gap: float, error: float, alpha: float, L: float, delta: float
) -> float:
    """Return the potential f(x) - f* + α³L²/δ E, where `error` is E, the average of ||e_m||².

    If ||v - Q(v)||² <= (1 - δ) ||v||², a round changes the potential by at most
    -α/2 (1 - αL) ||∇f(θ)||² + 2α³L²/δ² H. H is the average of ||∇f_m(θ) - q_m||².
    """
    require_alpha(alpha)
    require_smoothness(L)
    _require_delta(delta)
    require_nonnegative(gap=gap, error=error)
    return gap + alpha**3 * L**2 / delta * error


def error_feedback_initial_potential(
    gap: float, innovation: float, alpha: float, L: float, density: float, devices: int
) -> float:
    """Bound the expected potential of AQUILA-TopK before its first round.

    `gap` is f(θ⁰) - f*, and `innovation` is H, the average of ||∇f_m(θ⁰) - q_m||². The initial
    errors are random, independent and zero on average, with E at most 43/300 H/density².
    """
    require(0 < density <= 1, f"density must be above 0 and at most 1, not {density}")
    require(devices >= 1, f"devices must be at least 1, not {devices}")
    require_nonnegative(innovation=innovation)
    error = RANDOM_ERROR_ENERGY * innovation / density**2
    delta = SPARSE_CONTRACTION * density
    shift = alpha**2 * L / 2 * error / devices
    return error_feedback_potential(gap, error, alpha, L, delta) + shift


def max_alpha_error_feedback(L: float, delta: float, B: float = 1.0) -> float:
    """Return the largest α with αL + 4 (αLB/δ)² <= 1/2, where H <= B² ||∇f||² + G².

    Then the average of ||∇f(θ)||² over K rounds is at most 4 Ψ⁰/(αK) + 8 (αL/δ)² G².
    """
    require_smoothness(L)
    _require_delta(delta)
    require(0 < B < math.inf, f"B must be a number above 0, not {B}")
    slope = 4 * (B / delta) ** 2
    return (math.sqrt(1 + 2 * slope) - 1) / (2 * slope) / L


def _require_delta(delta: float) -> None:
    require(0 < delta <= 1, f"delta must be above 0 and at most 1, not {delta}")
