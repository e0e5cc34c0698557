"""The model that a device holds, named by its content, so that the next may come as a difference.

Both ends add a difference by the same rounded sum, so what a device holds has the bits of what the
server knows it to hold. The name is the checksum of the model's bytes; 0 names nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from aquila.core.packet import Codes, Dense, Packet, WireError
from aquila.core.vector import Vector
from aquila.core.wire import checksum_of_vector

UNNAMED = 0
"""What stands for the name of a model that need not be held."""


@dataclass(frozen=True, eq=False)
class ReferenceModel:
    """A model and its name."""

    theta: Vector
    checksum: int

    def with_difference(self, difference: Codes) -> "ReferenceModel":
        """Return the model with a difference added: one rounded sum in the model's type."""
        change = difference.decode()
        if change.dtype != self.theta.dtype:
            raise WireError(f"difference in {change.dtype} to a model in {self.theta.dtype}")
        return with_checksum(change.add_(self.theta))


ResolveModel = Callable[[Packet, Sequence[ReferenceModel]], ReferenceModel | None]
"""(frame of a model, models that are held) -> the model it stands for, None without its base"""


def with_checksum(theta: Vector) -> ReferenceModel:
    """Return a model with its name."""
    return ReferenceModel(theta, checksum_of_vector(theta) or 1)


def base_of(model: Packet, references: Iterable[ReferenceModel]) -> ReferenceModel | None:
    """Return the model that a difference is to, if it is held."""
    return next((base for base in references if base.checksum == model.answers), None)


def resolve_model(model: Packet, references: Sequence[ReferenceModel]) -> ReferenceModel | None:
    """Return the model that a frame stands for, None if it is a difference to one not held."""
    if model.vector is None:
        raise WireError("an order is a model frame and a control frame; this one has no model")
    if isinstance(model.vector, Dense):
        return ReferenceModel(model.vector.values, model.answers)
    base = base_of(model, references)
    if base is None:
        return None
    after = base.with_difference(model.vector)
    if not torch.isfinite(after.theta).all():
        raise WireError(f"difference of round {model.round} leads to a model that is not finite")
    return after
