"""Guard between a device's data and its method: no NaN or infinite number gets past it."""

import math
from dataclasses import dataclass
from typing import Literal

import torch

from aquila.core.fleet import DeviceId
from aquila.core.method import Oracle
from aquila.core.vector import Vector, max_norm

NanPolicy = Literal["stop", "skip"]
"""What a device does with a gradient that is not finite: stop the run, or refuse to upload."""


MAX_COORDINATE = {torch.float32: torch.finfo(torch.float32).max / 16, torch.float64: 1e150}
"""What a coordinate may reach, so that grids over differences and squared norms stay finite."""


class NonFiniteError(ArithmeticError):
    """A loss, gradient or model that holds NaN or infinite numbers."""


@dataclass(frozen=True)
class GuardedOracle:
    """An oracle whose answers have been checked, and that shares no memory with the method.

    A user's function may write to the model it is given, or hand out the same buffer twice. An
    oracle that does neither says so by `returns_fresh_memory`, which saves two copies.
    """

    inner: Oracle
    device: DeviceId
    round_number: int

    @property
    def samples(self) -> int:
        """Number of samples behind the device's loss."""
        return self.inner.samples

    def gradient(self, theta: Vector) -> tuple[float, Vector]:
        """Return loss and gradient, or raise."""
        return self._check(self.inner.gradient(self._own_copy(theta)), theta)

    def train(self, theta: Vector, alpha: float) -> tuple[float, Vector]:
        """Return loss and way of local training, or raise."""
        return self._check(self.inner.train(self._own_copy(theta), alpha), theta)

    def _own_copy(self, vector: Vector) -> Vector:
        return vector if getattr(self.inner, "returns_fresh_memory", False) else vector.clone()

    def _check(self, answer: object, theta: Vector) -> tuple[float, Vector]:
        where = f"device {self.device}, round {self.round_number}"
        if not isinstance(answer, tuple) or len(answer) != 2 or not torch.is_tensor(answer[1]):
            raise TypeError(f"{where}: a device must return (loss, gradient), not {answer!r}")
        loss, gradient = answer
        loss = float(loss.detach() if torch.is_tensor(loss) else loss)
        if gradient.shape != theta.shape or gradient.dtype != theta.dtype:
            raise TypeError(
                f"{where}: the gradient is {tuple(gradient.shape)} {gradient.dtype}, "
                f"the model {tuple(theta.shape)} {theta.dtype}"
            )
        if not max_norm(gradient) <= MAX_COORDINATE[gradient.dtype]:
            bad = int((~(gradient.abs() <= MAX_COORDINATE[gradient.dtype])).sum())
            raise NonFiniteError(
                f"{where}: {bad} of {len(gradient)} coordinates of the gradient are NaN, infinite "
                f"or beyond {MAX_COORDINATE[gradient.dtype]:.0e}"
            )
        if not math.isfinite(loss):
            raise NonFiniteError(f"{where}: the loss is {loss}")
        return loss, self._own_copy(gradient.detach())
