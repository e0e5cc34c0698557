"""Constants of AQUILA-Lots, unbiased uploads with a memory; docs/beyond.md has the derivations."""

import math

from aquila.theory.demands import demand, demand_alpha, demand_sizes, demand_smoothness


def lottery_descent_bound(
    alpha: float, L: float, gradient: float, news: float, omega: float, devices: int
) -> float:
    """Bound on E f(θᵏ⁺¹) - f(θᵏ) with unbiased uploads; `news` is H, the average of ||g_m - q_m||².

    If E||Q(v) - v||² <= ω ||v||², as with ω = 1/share in AQUILA-Lots, and the M devices draw
    independently: -α (1 - αL/2) ||∇f||² + α²Lω/(2M) H.
    """
    demand_alpha(alpha)
    demand_smoothness(L)
    _demand_lottery(omega, devices)
    demand_sizes(gradient=gradient, news=news)
    noise = alpha**2 * L * omega / (2 * devices) * news
    return -alpha * (1 - alpha * L / 2) * gradient + noise


def memory_learning(eta: float, omega: float) -> float:
    """Share ρ = 2η - η² (1 + ω) of ||g - q||² that a memory learns in a round on average.

    Above 0 for η < 2 / (1 + ω), and largest, 1 / (1 + ω), at half of that.
    """
    _demand_omega(omega)
    limit = 2 / (1 + omega)
    demand(0 < eta < limit, f"eta must be above 0 and below 2/(1+omega) = {limit:g}, not {eta}")
    return 2 * eta - eta**2 * (1 + omega)


def lottery_potential(
    gap: float, news: float, alpha: float, L: float, omega: float, rho: float, devices: int
) -> float:
    """f(θ) - f* + 2α²Lω/(ρM) H, with ρ from `memory_learning`.

    With α from `max_alpha_lottery` a round lowers it by α/2 ||∇f(θ)||² or more on average, so that
    the average of ||∇f||² over K rounds is at most 2 Ψ⁰/(αK). L bounds the smoothness of every f_m.
    """
    demand_alpha(alpha)
    demand_smoothness(L)
    _demand_lottery(omega, devices)
    _demand_rho(rho)
    demand_sizes(gap=gap, news=news)
    return gap + 2 * alpha**2 * L * omega / (rho * devices) * news


def max_alpha_lottery(L: float, omega: float, rho: float, devices: int) -> float:
    """Largest α with αL <= 1/2 and αL <= ρ √(M / (12 ω))."""
    demand_smoothness(L)
    _demand_lottery(omega, devices)
    _demand_rho(rho)
    return min(0.5, rho * math.sqrt(devices / (12 * omega))) / L


def _demand_lottery(omega: float, devices: int) -> None:
    _demand_omega(omega)
    demand(devices >= 1, f"devices must be at least 1, not {devices}")


def _demand_omega(omega: float) -> None:
    demand(0 < omega < math.inf, f"omega must be a number above 0, not {omega}")


def _demand_rho(rho: float) -> None:
    demand(0 < rho <= 1, f"rho must be above 0 and at most 1, not {rho}")
