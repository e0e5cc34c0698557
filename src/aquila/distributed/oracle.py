"""The oracle of a rank: a vector that is already computed."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from aquila.core.random import Key
from aquila.core.tensors import Shapes
from aquila.core.vector import Vector

OTHER_MODELS = (
    "the method needs gradients or losses at other models than the present one, which only the "
    "simulator and Flower have"
)


@dataclass
class RankOracle:
    """Answers with the vector of this rank, at the present model only.

    Args:
        update: Returns the vector, given the model of the order.
        shapes: Shapes of the tensors in the vector.
        model: Returns the present model.
        loss_value: Loss of this rank, None if it is not known.
        returns_fresh_memory: Whether each answer is a new vector that the method may change.
        samples: Number of samples, equal on all ranks, so that all have the same weight.
    """

    update: Callable[[Vector], Vector]
    shapes: Shapes
    model: Callable[[], Vector]
    loss_value: float | None = None
    returns_fresh_memory: bool = True
    samples: int = 1

    def oracle(self, key: Key) -> "RankOracle":
        """Return itself, because the batches are the user's."""
        return self

    def gradient(self, theta: Vector) -> tuple[float, Vector]:
        """Return the loss and the vector; ValueError for another model than the present one."""
        if not torch.equal(theta, self.model()):
            raise ValueError(OTHER_MODELS)
        return self.loss_value or 0.0, self.update(theta)

    def train(self, theta: Vector, alpha: float) -> tuple[float, Vector]:
        """Return the loss and the vector ÷ alpha."""
        loss, update = self.gradient(theta)
        return loss, update if alpha == 1 else update / alpha
