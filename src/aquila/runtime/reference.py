"""Models that a device holds, named by a checksum, so that the next model can be a difference.

Server and device add a difference by the same rounded sum. Both therefore hold the same bits. The
checksum is that of the model's bytes. 0 means that the model has no name. Codes that refer to 0 are
not a difference but a coded model, which needs no base. Differences can also consist of the uploads
of one round or more, which both sides add in the same order.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from aquila.core.envelope import require
from aquila.core.packet import Dense, Packet, RelayedRound, RelayedUploads, Upload, WireError
from aquila.core.vector import Vector, subtract
from aquila.core.wire import checksum_of_vector

UNNAMED = 0
"""Checksum field of a model that no difference will refer to."""
NO_BASE = 0
"""Checksum field of a coded model."""


@dataclass(frozen=True, eq=False)
class ReferenceModel:
    """A model and its checksum. On the server, also the relayed rounds that led to it."""

    theta: Vector
    checksum: int
    rounds: tuple[RelayedRound, ...] = ()

    @property
    def if_named(self) -> "ReferenceModel | None":
        """The model if the server has named it, None if no difference will refer to it."""
        return None if self.checksum == UNNAMED else self

    def with_difference(self, difference: Upload) -> "ReferenceModel":
        """Return the model plus a difference, computed as one rounded sum in the model's dtype."""
        change = difference.decode()
        self.require_dtype(change.dtype)
        return with_checksum(change.add_(self.theta))

    def require_dtype(self, dtype: torch.dtype) -> None:
        """Raise WireError if a difference has another type than the model."""
        if dtype != self.theta.dtype:
            raise WireError(f"the difference is {dtype}, but its model is {self.theta.dtype}")

    def with_sum(self, total: Vector, factor: float) -> "ReferenceModel":
        """Return the model plus a factor times a sum in float64, rounded to the model's dtype."""
        return with_checksum(subtract(self.theta, total * -factor))


ReadUpload = Callable[[bytes], Vector]
"""frame of a reply -> its upload, as a vector of the model"""

ResolveModel = Callable[[Packet, Sequence[ReferenceModel], ReadUpload], ReferenceModel | None]
"""(model frame, reference models, reader of relayed uploads) -> the model that the frame
represents, None if its base is missing"""


def with_checksum(theta: Vector) -> ReferenceModel:
    """Return a model with its checksum, which is never 0."""
    return ReferenceModel(theta, checksum_of_vector(theta) or 1)


def base_of(model: Packet, references: Iterable[ReferenceModel]) -> ReferenceModel | None:
    """Return the reference model that a difference refers to, None if it is missing.

    Relayed uploads refer to the model before each of their rounds, and the last one counts.
    """
    bases = [model.refers_to]
    if isinstance(model.vector, RelayedUploads):
        bases = [one.base for one in reversed(model.vector.rounds)]
    held = {reference.checksum: reference for reference in references}
    return next((held[base] for base in bases if base in held), None)


def sum_of_uploads(
    weights: Sequence[float], frames: Sequence[bytes], like: Vector, read: ReadUpload
) -> Vector:
    """Return the weighted sum of relayed uploads, in float64 and in their order."""
    total = torch.zeros_like(like, dtype=torch.float64)
    for weight, frame in zip(weights, frames, strict=True):
        upload = read(frame)
        require(len(upload) == len(total), "a relayed upload has another number of coordinates")
        # a product and a sum, because some hardware rounds both of them at once
        total.add_(upload.double() * weight)
    return total


def with_rounds(
    base: ReferenceModel, relayed: RelayedUploads, read: ReadUpload
) -> ReferenceModel | None:
    """Return the model after the relayed rounds from its base on.

    None if a round leads to another model than the one that the next round refers to.
    """
    base.require_dtype(relayed.dtype)
    require(relayed.dimension == len(base.theta), "relayed uploads have another dimension")
    bases = [one.base for one in relayed.rounds]
    start = len(bases) - 1 - bases[::-1].index(base.checksum)
    for one in relayed.rounds[start:]:
        if one.base != base.checksum:
            return None
        total = sum_of_uploads(one.weights, one.frames, base.theta, read)
        base = base.with_sum(total, one.factor)
    return base


def resolve_model(
    model: Packet, references: Sequence[ReferenceModel], read_upload: ReadUpload
) -> ReferenceModel | None:
    """Return the model that a frame represents, None if the device lacks what it builds on.

    `read_upload` reads the uploads that a frame relays.
    """
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
        if isinstance(model.vector, RelayedUploads):
            changed = with_rounds(base, model.vector, read_upload)
            if changed is None:
                return None
            resolved = changed
        else:
            resolved = base.with_difference(model.vector)
    if not torch.isfinite(resolved.theta).all():
        raise WireError(f"the order of round {model.round} gives a model that is not finite")
    return resolved
