"""Convergence constants of AQUILA (with corrected proofs) and of this project's methods."""

from aquila.theory.error_feedback import (
    RANDOM_ERROR_ENERGY,
    SPARSE_CONTRACTION,
    error_feedback_descent_bound,
    error_feedback_initial_potential,
    error_feedback_potential,
    max_alpha_error_feedback,
)
from aquila.theory.lazy_aggregation import (
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
from aquila.theory.local_steps import (
    LocalTrainingFacts,
    local_descent_bound,
    local_drift_bound,
    local_gradient_bound,
    local_innovation_bound,
)
from aquila.theory.stochastic_sparse import (
    max_alpha_stochastic_sparse,
    memory_contraction,
    stochastic_sparse_descent_bound,
    stochastic_sparse_potential,
)

__all__ = [
    "RANDOM_ERROR_ENERGY",
    "SPARSE_CONTRACTION",
    "TIGHT_CONTRACTION",
    "LocalTrainingFacts",
    "descent_bound",
    "descent_bound_no_skips",
    "descent_bound_skips",
    "error_feedback_descent_bound",
    "error_feedback_initial_potential",
    "error_feedback_potential",
    "local_descent_bound",
    "local_drift_bound",
    "local_gradient_bound",
    "local_innovation_bound",
    "max_alpha_error_feedback",
    "max_alpha_stochastic_sparse",
    "max_beta",
    "max_beta_contracting",
    "max_beta_pl",
    "measured_gamma",
    "memory_contraction",
    "omega_1",
    "omega_1_pl",
    "potential",
    "rounds_to_gap",
    "rounds_to_gradient",
    "stochastic_sparse_descent_bound",
    "stochastic_sparse_potential",
]
