"""Variants between AQUILA-TopK and SparseLoCo, for an ablation with distributed.py.

AQUILA-TopK differs from SparseLoCo in five parts. Each variant changes one part or more:

    errors      the first errors are drawn at random (AQUILA-TopK), or zero (SparseLoCo)
    memory      a damped memory is subtracted before coding, or there is none
    selection   the largest coordinates of the whole model, or of each chunk of 4096
    grid        up to 8 levels with a dead zone, or two levels fitted by Lloyd's algorithm
    decay       the error is kept as it is, or multiplied by 0.95 per round
"""

from dataclasses import dataclass

import aquila
from aquila.core.method import Method
from aquila.core.quantize import sparse
from aquila.methods.aquila_topk import (
    TOPK_DENSITY,
    AquilaTopkDevice,
    memory_rate,
    request_random_errors,
)
from aquila.methods.parts.error_feedback import ErrorFeedbackDevice
from aquila.methods.parts.mean import MeanServer
from aquila.methods.parts.sparse_memory import SparseMemoryServer, no_scalars

DENSITY = 0.0115
"""Density of AQUILA-TopK with about 300 times fewer bytes than dense frames."""
NO_MEMORY_RATE = 1e-12
WHOLE_MODEL = 2**31 - 1
"""A chunk that is larger than any model here."""


@dataclass(frozen=True)
class LargestOfModel:
    """Keeps the largest coordinates of the whole model on the grid of AQUILA-TopK."""

    density: float

    def __call__(self, v):
        return sparse(v, self.density)


@dataclass(frozen=True)
class ConstantRate:
    """A rate of the memories that does not depend on the density."""

    rate: float

    def __call__(self, density):
        return self.rate


def topk_variant(errors, memory, density=DENSITY):
    """Return AQUILA-TopK with or without random errors and memories."""
    rate = memory_rate if memory else ConstantRate(NO_MEMORY_RATE)
    more = request_random_errors if errors else no_scalars
    server = SparseMemoryServer(1.0, density, TOPK_DENSITY, rate, more)
    return Method("aquila_topk", AquilaTopkDevice(1.0, "gradient"), server)


def feedback_variant(decay, density=DENSITY):
    """Return plain error feedback with the selection and the grid of AQUILA-TopK."""
    device = ErrorFeedbackDevice(1.0, LargestOfModel(density), "gradient", decay)
    return Method("aquila_topk", device, MeanServer(1.0))


def sparseloco_variant(**changes):
    """Return SparseLoCo with other parameters."""
    return aquila.create("sparseloco", alpha=1.0, **{"density": 0.0107, **changes})


VARIANTS = {
    "ablation_zero_errors": topk_variant(errors=False, memory=True),
    "ablation_no_memory": topk_variant(errors=True, memory=False),
    "ablation_zero_errors_no_memory": topk_variant(errors=False, memory=False),
    "ablation_feedback": feedback_variant(1.0),
    "ablation_feedback_decay": feedback_variant(0.95),
    "ablation_sparseloco_no_decay": sparseloco_variant(beta=1.0),
    "ablation_sparseloco_global": sparseloco_variant(chunk=WHOLE_MODEL),
    "ablation_sparseloco_global_no_decay": sparseloco_variant(chunk=WHOLE_MODEL, beta=1.0),
}
"""Methods by their name. The outer loop averages models, as with SparseLoCo."""
