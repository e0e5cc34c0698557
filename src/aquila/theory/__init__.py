"""Convergence constants: of AQUILA with the paper's errors corrected, and of our own methods."""

from aquila.theory.feedback import (
    SPARSE_CONTRACTION,
    feedback_descent_bound,
    feedback_potential,
    max_alpha_feedback,
)
from aquila.theory.lazy import (
    TIGHT_CONTRACTION,
    descent_bound,
    descent_bound_no_skips,
    descent_bound_skips,
    max_beta,
    max_beta_contracting,
    max_beta_pl,
    measured_gamma,
    omega_1,
    omega_1_pl,
    potential,
    rounds_to_gap,
    rounds_to_gradient,
)
from aquila.theory.lottery import (
    lottery_descent_bound,
    lottery_potential,
    max_alpha_lottery,
    memory_learning,
)

__all__ = [
    "SPARSE_CONTRACTION",
    "TIGHT_CONTRACTION",
    "descent_bound",
    "descent_bound_no_skips",
    "descent_bound_skips",
    "feedback_descent_bound",
    "feedback_potential",
    "lottery_descent_bound",
    "lottery_potential",
    "max_alpha_feedback",
    "max_alpha_lottery",
    "max_beta",
    "max_beta_contracting",
    "max_beta_pl",
    "measured_gamma",
    "memory_learning",
    "omega_1",
    "omega_1_pl",
    "potential",
    "rounds_to_gap",
    "rounds_to_gradient",
]
