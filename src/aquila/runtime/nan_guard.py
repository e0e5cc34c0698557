"""Guard between a device's data and its method that rejects NaN and infinite numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from aquila.core.fleet import DeviceId
from aquila.core.method import Oracle
from aquila.core.vector import Vector, max_norm

MAX_COORDINATE = {torch.float32: torch.finfo(torch.float32).max / 16, torch.float64: 1e150}
"""Largest allowed coordinate. Grids over differences and squared norms then stay finite."""

MAX_LOSS = 1e150
"""Largest absolute loss. Averages of losses then stay finite."""


class NonFiniteError(ArithmeticError):
    """A loss, gradient or model holds NaN or infinite numbers."""


@dataclass(frozen=True)
class GuardedOracle:
    """An oracle whose results are checked and share no memory with the method.

    A user's function may write to its argument or return the same buffer twice, so the guard
    copies both. An oracle that does neither sets `returns_fresh_memory` to avoid the copies.
    Local training uses the rate of the method times `lr_factor`.
    """

    inner: Oracle
    device: DeviceId
    round_number: int
    lr_factor: float = 1.0

    @property
    def samples(self) -> int:
        """Number of samples of the device."""
        return self.inner.samples

    @property
    def shapes(self) -> Sequence[torch.Size] | None:
        """The shapes of the model's tensors, None if the oracle does not state them."""
        return getattr(self.inner, "shapes", None)

    def gradient(self, theta: Vector) -> tuple[float, Vector]:
        """Return loss and gradient; raise NonFiniteError if one of them is not finite."""
        return self._check(self.inner.gradient(self._own_copy(theta)), theta)

    def train(self, theta: Vector, alpha: float) -> tuple[float, Vector]:
        """Return loss and local update; raise NonFiniteError if one of them is not finite."""
        rate = alpha * self.lr_factor
        return self._check(self.inner.train(self._own_copy(theta), rate), theta)

    def loss(self, theta: Vector, all_samples: bool) -> float:
        """Return the loss over all samples, or over the round's first minibatch.

        An oracle without a function `loss` computes a gradient.
        """
        compute = getattr(self.inner, "loss", None)
        if compute is None:
            return self.gradient(theta)[0]
        value = float(compute(self._own_copy(theta), all_samples))
        if not abs(value) <= MAX_LOSS:
            raise NonFiniteError(f"{self._name}: the loss is {value}")
        return value

    @property
    def _name(self) -> str:
        return f"device {self.device}, round {self.round_number}"

    def _own_copy(self, vector: Vector) -> Vector:
        return vector if getattr(self.inner, "returns_fresh_memory", False) else vector.clone()

    def _check(self, result: object, theta: Vector) -> tuple[float, Vector]:
        if not isinstance(result, tuple) or len(result) != 2 or not torch.is_tensor(result[1]):
            raise TypeError(f"{self._name}: a device must return (loss, gradient), not {result!r}")
        loss, gradient = result
        try:
            loss = float(loss.detach() if torch.is_tensor(loss) else loss)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"{self._name}: the loss must be one number, not {loss!r}") from None
        if gradient.shape != theta.shape or gradient.dtype != theta.dtype:
            raise TypeError(
                f"{self._name}: the gradient is {tuple(gradient.shape)} {gradient.dtype}, "
                f"but the model is {tuple(theta.shape)} {theta.dtype}"
            )
        if not max_norm(gradient) <= MAX_COORDINATE[gradient.dtype]:
            bad = int((~(gradient.abs() <= MAX_COORDINATE[gradient.dtype])).sum())
            raise NonFiniteError(
                f"{self._name}: {bad} of {len(gradient)} coordinates of the gradient are NaN, "
                f"infinite or beyond {MAX_COORDINATE[gradient.dtype]:.0e}"
            )
        if not abs(loss) <= MAX_LOSS:
            raise NonFiniteError(f"{self._name}: the loss is {loss}")
        return loss, self._own_copy(gradient.detach() if gradient.requires_grad else gradient)
