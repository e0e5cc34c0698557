"""Constants of AQUILA-Dither with several local steps; proofs: docs/our-methods-local-steps.md."""

import math
from dataclasses import dataclass

from aquila.theory.checks import require, require_alpha, require_nonnegative, require_smoothness

MAX_ROUND_RATE = 1 / 4
"""Largest α τ L for which the bounds of this module hold."""
MAX_NOISE_RATE = 1 / 24
"""Largest α τ L ω / M for which `local_gradient_bound` holds."""


@dataclass(frozen=True)
class LocalTrainingFacts:
    """What the bounds need to know about local training.

    Args:
        alpha: The step size, on devices and on the server.
        steps: Local steps τ per round.
        L: A smoothness constant of every f_m.
        sigma2: Bound on the variance of a minibatch gradient, as the expected squared norm.
        zeta2: Bound on the mean of ||∇f_m - ∇f||² over the devices.
    """

    alpha: float
    steps: int
    L: float
    sigma2: float = 0.0
    zeta2: float = 0.0

    def __post_init__(self) -> None:
        """Check the values, and that α τ L is at most 1/4."""
        require_alpha(self.alpha)
        require_smoothness(self.L)
        require(self.steps >= 1, f"steps must be at least 1, not {self.steps}")
        require_nonnegative(sigma2=self.sigma2, zeta2=self.zeta2)
        rate = self.round_rate
        require(rate <= MAX_ROUND_RATE, f"alpha * steps * L must be at most 1/4, not {rate:g}")

    @property
    def round_rate(self) -> float:
        """The product α τ L."""
        return self.alpha * self.steps * self.L


def local_drift_bound(facts: LocalTrainingFacts, gradient: float) -> float:
    """Bound D, the mean of E||θ - y||² over devices and over the τ models y of a round.

    `gradient` is ||∇f(θ)||². The bound is 2α²τσ² + 2α²τ² (||∇f||² + ζ²).
    """
    require_nonnegative(gradient=gradient)
    moved = facts.steps * facts.sigma2 + facts.steps**2 * (gradient + facts.zeta2)
    return 2 * facts.alpha**2 * moved


def local_descent_bound(
    facts: LocalTrainingFacts, gradient: float, innovation: float, omega: float, devices: int
) -> float:
    """Bound E f(θᵏ⁺¹) - f(θᵏ) for devices with local steps, with or without a memory.

    `innovation` is H, the mean of E||v_m - q_m||², where v_m is the sum of the local gradients. The
    bound is -(7/16) ατ ||∇f||² + α³τ²L² (σ² + τζ²) + α²τL σ²/M + α²Lω/(2M) H.
    """
    _require_omega_and_devices(omega, devices)
    require_nonnegative(gradient=gradient, innovation=innovation)
    alpha, tau, L = facts.alpha, facts.steps, facts.L
    drift = alpha**3 * tau**2 * L**2 * (facts.sigma2 + tau * facts.zeta2)
    minibatches = alpha**2 * tau * L * facts.sigma2 / devices
    quantizer = alpha**2 * L * omega / (2 * devices) * innovation
    return -7 / 16 * alpha * tau * gradient + drift + minibatches + quantizer


def local_innovation_bound(facts: LocalTrainingFacts, gradient: float) -> float:
    """Bound H of devices without a memory: 3τσ² + 5τ² (||∇f||² + ζ²)."""
    require_nonnegative(gradient=gradient)
    return 3 * facts.steps * facts.sigma2 + 5 * facts.steps**2 * (gradient + facts.zeta2)


def local_gradient_bound(
    facts: LocalTrainingFacts, gap: float, rounds: int, omega: float, devices: int
) -> float:
    """Bound the mean of E||∇f||² over the rounds, for devices without a memory.

    `gap` is f(θ⁰) - f*. The bound needs α τ L ω / M <= 1/24.
    """
    _require_omega_and_devices(omega, devices)
    require_nonnegative(gap=gap)
    require(rounds >= 1, f"rounds must be at least 1, not {rounds}")
    noise_rate = facts.round_rate * omega / devices
    require(
        noise_rate <= MAX_NOISE_RATE,
        f"alpha * steps * L * omega / devices must be at most 1/24, not {noise_rate:g}",
    )
    alpha, tau, L = facts.alpha, facts.steps, facts.L
    start = 3 * gap / (alpha * tau * rounds)
    minibatches = 3 * alpha * L * (1 + 1.5 * omega) / devices + 3 * alpha**2 * tau * L**2
    differences = 3 * facts.round_rate**2 + 7.5 * noise_rate
    return start + minibatches * facts.sigma2 + differences * facts.zeta2


def _require_omega_and_devices(omega: float, devices: int) -> None:
    require(0 < omega < math.inf, f"omega must be a number above 0, not {omega}")
    require(devices >= 1, f"devices must be at least 1, not {devices}")
