"""Guard between a device's data and its method: no NaN or infinite number gets past it."""

import math
from dataclasses import dataclass
from typing import Literal

import torch

from aquila.core.fleet import DeviceId
from aquila.core.method import Oracle
from aquila.core.vector import Vector

NanPolicy = Literal["stop", "skip"]
"""What a device does with a gradient that is not finite: stop the run, or refuse to upload."""


HEADROOM = 1 / 16
"""Share of the largest float a coordinate may reach, so that grids over differences stay finite."""


class NonFiniteError(ArithmeticError):
    """A loss, gradient or model that holds NaN or infinite numbers."""


@dataclass(frozen=True)
class GuardedOracle:
    """An oracle whose answers have been checked."""

    inner: Oracle
    device: DeviceId
    round: int

    @property
    def samples(self) -> int:
        """Number of samples behind the device's loss."""
        return self.inner.samples

    def gradient(self, theta: Vector) -> tuple[float, Vector]:
        """Return loss and gradient, or raise."""
        return self._checked(*self.inner.gradient(theta), theta)

    def train(self, theta: Vector, alpha: float) -> tuple[float, Vector]:
        """Return loss and way of local training, or raise."""
        return self._checked(*self.inner.train(theta, alpha), theta)

    def _checked(self, loss: float, gradient: Vector, theta: Vector) -> tuple[float, Vector]:
        where = f"device {self.device}, round {self.round}"
        if gradient.shape != theta.shape or gradient.dtype != theta.dtype:
            raise TypeError(
                f"{where}: the gradient is {tuple(gradient.shape)} {gradient.dtype}, "
                f"the model {tuple(theta.shape)} {theta.dtype}"
            )
        limit = torch.finfo(gradient.dtype).max * HEADROOM
        bad = int((~(gradient.abs() <= limit)).sum())
        if bad:
            raise NonFiniteError(
                f"{where}: {bad} of {len(gradient)} coordinates of the gradient are NaN or infinite"
            )
        if not math.isfinite(loss):
            raise NonFiniteError(f"{where}: the loss is {loss}")
        return float(loss), gradient
