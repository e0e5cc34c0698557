"""What the bounds ask of their arguments; every refusal names what is allowed."""

import math


def require(condition: bool, message: str) -> None:
    """Raise ValueError with a sentence unless a condition holds."""
    if not condition:
        raise ValueError(message)


def require_alpha(alpha: float) -> None:
    """Refuse a step size that is none."""
    require(0 < alpha < math.inf, f"alpha must be a number above 0, not {alpha}")


def require_smoothness(L: float) -> None:
    """Refuse a smoothness constant that is none."""
    require(0 < L < math.inf, f"L must be a number above 0, not {L}")


def require_step_size(alpha: float, L: float) -> None:
    """Refuse a step size that leaves no room for beta."""
    require_alpha(alpha)
    require_smoothness(L)
    require(
        alpha * L < 1, f"alpha must be below 1/L = {1 / L:g} to leave room for beta, not {alpha}"
    )


def require_mu(mu: float, L: float) -> None:
    """Refuse a constant of the Polyak-Łojasiewicz condition that cannot be."""
    require(0 < mu <= L, f"mu must be above 0 and at most L = {L:g}, not {mu}")


def require_beta(beta: float) -> None:
    """Refuse a beta below 0."""
    require(0 <= beta < math.inf, f"beta must be a number from 0 on, not {beta}")


def require_gamma(gamma: float) -> None:
    """Refuse a gamma below 1."""
    require(1 <= gamma < math.inf, f"gamma must be a number from 1 on, not {gamma}")


def require_epsilon(epsilon: float) -> None:
    """Refuse a target that is never met."""
    require(0 < epsilon < math.inf, f"epsilon must be a number above 0, not {epsilon}")


def require_nonnegative(**sizes: float) -> None:
    """Refuse squared norms below 0, by name."""
    for name, size in sizes.items():
        require(0 <= size < math.inf, f"{name} must be a number from 0 on, not {size}")
