"""Checks of the arguments of the bounds. Every error message states what is allowed."""

import math


def require(condition: bool, message: str) -> None:
    """Raise ValueError with this message unless the condition holds."""
    if not condition:
        raise ValueError(message)


def require_alpha(alpha: float) -> None:
    """Raise ValueError for an invalid step size."""
    require(0 < alpha < math.inf, f"alpha must be a number above 0, not {alpha}")


def require_smoothness(L: float) -> None:
    """Raise ValueError for an invalid smoothness constant."""
    require(0 < L < math.inf, f"L must be a number above 0, not {L}")


def require_step_size(alpha: float, L: float) -> None:
    """Raise ValueError for a step size that allows no beta above 0."""
    require_alpha(alpha)
    require_smoothness(L)
    require(
        alpha * L < 1, f"alpha must be below 1/L = {1 / L:g} to allow a beta above 0, not {alpha}"
    )


def require_mu(mu: float, L: float) -> None:
    """Raise ValueError for an invalid Polyak-Łojasiewicz constant."""
    require(0 < mu <= L, f"mu must be above 0 and at most L = {L:g}, not {mu}")


def require_beta(beta: float) -> None:
    """Raise ValueError for a beta below 0."""
    require(0 <= beta < math.inf, f"beta must be a number >= 0, not {beta}")


def require_gamma(gamma: float) -> None:
    """Raise ValueError for a gamma below 1."""
    require(1 <= gamma < math.inf, f"gamma must be a number >= 1, not {gamma}")


def require_epsilon(epsilon: float) -> None:
    """Raise ValueError for a target that cannot be met."""
    require(0 < epsilon < math.inf, f"epsilon must be a number above 0, not {epsilon}")


def require_nonnegative(**sizes: float) -> None:
    """Raise ValueError for a squared norm below 0, given by its name."""
    for name, size in sizes.items():
        require(0 <= size < math.inf, f"{name} must be a number >= 0, not {size}")
