"""Part: a device that keeps what compression left out and adds it to its next upload.

Let e be the error of a device. In each round it computes p = decay e + g, sends u = C(p) and keeps
e <- p - u. The papers multiply the gradient by the step size before adding it. Uploads are divided
by the step size here, so e is multiplied by the old step size and divided by the new one.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from aquila.core.method import Oracle, Turn, Work, local_work, scheduled_alpha, theta_of
from aquila.core.packet import Codes, Packet
from aquila.core.random import Key
from aquila.core.vector import Vector, relative_norm, squared_norm


class Compressor(Protocol):
    """Vector to codes, or None if there is nothing to send."""

    def __call__(self, v: Vector) -> Codes | None:
        """Compress a vector."""


def rescaled_error(error: Vector, old_alpha: float, alpha: float) -> Vector:
    """Return an error that was kept at one step size for another one.

    Its product with the step size, the change of the model that was not sent, stays the same.
    """
    return error if old_alpha == alpha else error * (old_alpha / alpha)


@dataclass(frozen=True, eq=False)
class AccumulatedError:
    """State of a device: what it has not sent, and the step size of the round that it is from."""

    e: Vector
    alpha: float


@dataclass(frozen=True)
class ErrorFeedbackDevice:
    """Sends its compressed accumulated error.

    Args:
        alpha: Step size of local steps.
        compress: Compresses the accumulated error.
        work: What the device computes in a round.
        decay: Factor on the error of earlier rounds.
    """

    alpha: float
    compress: Compressor
    work: Work
    decay: float = 1.0

    def init(self, like: Vector) -> AccumulatedError:
        """Start with e = 0."""
        return AccumulatedError(torch.zeros_like(like), self.alpha)

    def step(
        self, state: AccumulatedError, order: Packet, oracle: Oracle, key: Key
    ) -> Turn[AccumulatedError]:
        """Send u = C(decay e + g) and keep the rest."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        alpha = scheduled_alpha(order, self.alpha)
        accumulated = self.decay * rescaled_error(state.e, state.alpha, alpha) + gradient
        codes = self.compress(accumulated)
        if codes is None:
            return Turn(AccumulatedError(accumulated, alpha), Packet(order.round), {"loss": loss})
        residual = accumulated - codes.decode()
        ratio = relative_norm(squared_norm(residual), squared_norm(accumulated))
        notes = {"loss": loss, "error_ratio": ratio}
        return Turn(AccumulatedError(residual, alpha), Packet(order.round, codes), notes)
