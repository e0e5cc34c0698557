"""Constants of AQUILA-Dither, unbiased uploads with memory; proofs: docs/our-methods-proofs.md."""

import math

from aquila.theory.checks import require, require_alpha, require_nonnegative, require_smoothness


def stochastic_sparse_descent_bound(
    alpha: float, L: float, gradient: float, innovation: float, omega: float, devices: int
) -> float:
    """Bound E f(θᵏ⁺¹) - f(θᵏ) with unbiased uploads.

    `innovation` is H, the average of ||g_m - q_m||². The bound -α (1 - αL/2) ||∇f||² + α²Lω/(2M) H
    holds if E||Q(v) - v||² <= ω ||v||² and the M devices quantize independently. AQUILA-Dither has
    ω = 1 / density.
    """
    require_alpha(alpha)
    require_smoothness(L)
    _require_omega_and_devices(omega, devices)
    require_nonnegative(gradient=gradient, innovation=innovation)
    noise = alpha**2 * L * omega / (2 * devices) * innovation
    return -alpha * (1 - alpha * L / 2) * gradient + noise


def memory_contraction(eta: float, omega: float) -> float:
    """Return ρ = 2η - η² (1 + ω), the expected relative decrease of ||g - q||² per round.

    ρ is above 0 for η < 2 / (1 + ω). Its maximum 1 / (1 + ω) is at η = 1 / (1 + ω).
    """
    _require_omega(omega)
    limit = 2 / (1 + omega)
    require(0 < eta < limit, f"eta must be above 0 and below 2/(1+omega) = {limit:g}, not {eta}")
    return 2 * eta - eta**2 * (1 + omega)


def stochastic_sparse_potential(
    gap: float, innovation: float, alpha: float, L: float, omega: float, rho: float, devices: int
) -> float:
    """Return the potential Ψ = f(θ) - f* + 2α²Lω/(ρM) H, with ρ from `memory_contraction`.

    With α from `max_alpha_stochastic_sparse` a round lowers Ψ by at least α/2 ||∇f(θ)||² in
    expectation. The average of ||∇f||² over K rounds is then at most 2 Ψ⁰/(αK). L bounds the
    smoothness of every f_m.
    """
    require_alpha(alpha)
    require_smoothness(L)
    _require_omega_and_devices(omega, devices)
    _require_rho(rho)
    require_nonnegative(gap=gap, innovation=innovation)
    return gap + 2 * alpha**2 * L * omega / (rho * devices) * innovation


def max_alpha_stochastic_sparse(L: float, omega: float, rho: float, devices: int) -> float:
    """Return the largest α with αL <= 1/2 and αL <= ρ √(M / (12 ω))."""
    require_smoothness(L)
    _require_omega_and_devices(omega, devices)
    _require_rho(rho)
    return min(0.5, rho * math.sqrt(devices / (12 * omega))) / L


def _require_omega_and_devices(omega: float, devices: int) -> None:
    _require_omega(omega)
    require(devices >= 1, f"devices must be at least 1, not {devices}")


def _require_omega(omega: float) -> None:
    require(0 < omega < math.inf, f"omega must be a number above 0, not {omega}")


def _require_rho(rho: float) -> None:
    require(0 < rho <= 1, f"rho must be above 0 and at most 1, not {rho}")
