"""Models that a device holds, named by a checksum, so that the next model can be a difference.

Server and device add a difference by the same rounded sum. Both therefore hold the same bits. The
checksum is that of the model's bytes. 0 means that the model has no name. Codes that refer to 0 are
not a difference but a coded model, which needs no base.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from aquila.core.packet import Dense, Packet, Upload, WireError
from aquila.core.vector import Vector
from aquila.core.wire import checksum_of_vector

UNNAMED = 0
"""Checksum field of a model that no difference will refer to."""
NO_BASE = 0
"""Checksum field of a coded model."""


@dataclass(frozen=True, eq=False)
class ReferenceModel:
    """A model and its checksum."""

    theta: Vector
    checksum: int

    def with_difference(self, difference: Upload) -> "ReferenceModel":
        """Return the model plus a difference, computed as one rounded sum in the model's dtype."""
        change = difference.decode()
        if change.dtype != self.theta.dtype:
            raise WireError(
                f"the difference is {change.dtype}, but its model is {self.theta.dtype}"
            )
        return with_checksum(change.add_(self.theta))


ResolveModel = Callable[[Packet, Sequence[ReferenceModel]], ReferenceModel | None]
"""(model frame, reference models) -> the model it represents, None if its base is missing"""


def with_checksum(theta: Vector) -> ReferenceModel:
    """Return a model with its checksum, which is never 0."""
    return ReferenceModel(theta, checksum_of_vector(theta) or 1)


def base_of(model: Packet, references: Iterable[ReferenceModel]) -> ReferenceModel | None:
    """Return the reference model that a difference refers to, None if it is missing."""
    return next((base for base in references if base.checksum == model.refers_to), None)


def resolve_model(model: Packet, references: Sequence[ReferenceModel]) -> ReferenceModel | None:
    """Return the model that a frame represents, None if it is a difference without its base."""
    if model.vector is None:
        raise WireError("the model frame of an order must hold a model, but this one is empty")
    if isinstance(model.vector, Dense):
        return ReferenceModel(model.vector.values, model.refers_to)
    if model.refers_to == NO_BASE:
        resolved = with_checksum(model.vector.decode())
    else:
        base = base_of(model, references)
        if base is None:
            return None
        resolved = base.with_difference(model.vector)
    if not torch.isfinite(resolved.theta).all():
        raise WireError(f"the order of round {model.round} gives a model that is not finite")
    return resolved
