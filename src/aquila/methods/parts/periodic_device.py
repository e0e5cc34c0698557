"""Part: a device that continues its local training between uploads.

The server is in `parts/periodic_uploads.py`.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aquila.core.method import (
    DeviceHalf,
    Oracle,
    Turn,
    Work,
    local_work,
    scheduled_alpha,
    theta_of,
)
from aquila.core.packet import Packet, WireError
from aquila.core.random import Key
from aquila.core.vector import Vector

_LOG = logging.getLogger("aquila")

ROUNDS_PER_UPLOAD = "rounds_per_upload"
"""Scalar of an order: n, if it is above 1. Devices upload in the last of every n rounds."""
MAX_ROUNDS_PER_UPLOAD = 1000
NO_PERIOD = -1


@dataclass(frozen=True, eq=False)
class PeriodicDeviceState:
    """State of a device.

    Attributes:
        inner: State of the method.
        progress: Model of the server minus the local model. Zero after an upload.
        period: The period, n rounds long, in which the progress was made; -1 without progress.
    """

    inner: Any
    progress: Vector
    period: int = NO_PERIOD

    @property
    def has_progress(self) -> bool:
        """Whether the device has trained since its last upload."""
        return self.period != NO_PERIOD

    def without_progress(self, inner: Any) -> "PeriodicDeviceState":
        """Return the state after an upload, with this state of the method."""
        zero = torch.zeros_like(self.progress) if self.has_progress else self.progress
        return PeriodicDeviceState(inner, zero)


def position_of(order: Packet) -> tuple[int, bool]:
    """Return the number of the period of an order, and whether its round is the last of it."""
    rounds = order.scalars.get(ROUNDS_PER_UPLOAD, 1.0)
    if not (1 <= rounds <= MAX_ROUNDS_PER_UPLOAD and rounds == int(rounds)):
        raise WireError(
            f"the order of round {order.round} has {ROUNDS_PER_UPLOAD} = {rounds}; it must be a "
            f"whole number from 1 to {MAX_ROUNDS_PER_UPLOAD}"
        )
    period, position = divmod(order.round, int(rounds))
    return period, position == rounds - 1


@dataclass(frozen=True)
class ContinuedOracle:
    """An oracle at the local model, whose updates include the progress since the last upload.

    Args:
        oracle: The data of the device.
        progress: Model of the server minus the local model.
        alpha: Step size of the round, which turns progress into a sum of gradients.
    """

    oracle: Oracle
    progress: Vector
    alpha: float

    @property
    def samples(self) -> int:
        """Number of samples that the loss averages over."""
        return self.oracle.samples

    @property
    def shapes(self) -> Sequence[torch.Size] | None:
        """The shapes of the model's tensors, None if the oracle does not state them."""
        return getattr(self.oracle, "shapes", None)

    def gradient(self, theta: Vector) -> tuple[float, Vector]:
        """Return the loss at the local model, and the progress after a step from there."""
        loss, gradient = self.oracle.gradient(theta - self.progress)
        return loss, gradient.add(self.progress, alpha=1 / self.alpha)

    def train(self, theta: Vector, alpha: float) -> tuple[float, Vector]:
        """Return the loss, and the progress after local training from the local model."""
        loss, update = self.oracle.train(theta - self.progress, alpha)
        return loss, update.add(self.progress, alpha=1 / self.alpha)


def _continued(oracle: Oracle, state: PeriodicDeviceState, alpha: float) -> Oracle:
    """Return the oracle at the local model of a device."""
    return ContinuedOracle(oracle, state.progress, alpha) if state.has_progress else oracle


@dataclass(frozen=True)
class PeriodicDevice:
    """A device that trains in every round and uploads in the last round of a period.

    It drops its progress if its upload is lost, if it misses the round with uploads, and if its
    local model is no longer finite. It then continues from the model of the server.
    """

    inner: DeviceHalf[Any]
    alpha: float
    work: Work

    @property
    def needs_other_models(self) -> bool:
        """True: the local model differs from that of the order."""
        return True

    def init(self, like: Vector) -> PeriodicDeviceState:
        """Start at the model of the server."""
        return PeriodicDeviceState(self.inner.init(like), torch.zeros_like(like))

    def step(
        self, state: PeriodicDeviceState, order: Packet, oracle: Oracle, key: Key
    ) -> Turn[PeriodicDeviceState]:
        """Train, and upload in the last round of a period."""
        period, is_last = position_of(order)
        if state.period != period:
            state = state.without_progress(state.inner)
        turn = self._upload if is_last else self._train
        try:
            return turn(state, order, oracle, key)
        except ArithmeticError:  # numbers that are not finite
            if not state.has_progress:
                raise
            _LOG.warning("round %d: a device drops a local model with NaN", order.round)
            return turn(state.without_progress(state.inner), order, oracle, key)

    def _train(
        self, state: PeriodicDeviceState, order: Packet, oracle: Oracle, key: Key
    ) -> Turn[PeriodicDeviceState]:
        alpha = scheduled_alpha(order, self.alpha)
        oracle = _continued(oracle, state, alpha)
        loss, update = local_work(oracle, theta_of(order), self.work, self.alpha)
        trained = PeriodicDeviceState(state.inner, alpha * update, position_of(order)[0])
        return Turn(trained, Packet(order.round), {"loss": loss}, fallback=trained)

    def _upload(
        self, state: PeriodicDeviceState, order: Packet, oracle: Oracle, key: Key
    ) -> Turn[PeriodicDeviceState]:
        oracle = _continued(oracle, state, scheduled_alpha(order, self.alpha))
        turn = self.inner.step(state.inner, order, oracle, key)
        fallback = state.inner if turn.fallback is None else turn.fallback
        return Turn(
            state.without_progress(turn.state),
            turn.reply,
            turn.notes,
            state.without_progress(fallback),
        )

    def memory(self, state: PeriodicDeviceState) -> Vector:
        """Return the memory of the method."""
        memory: Vector = self.inner.memory(state.inner)  # type: ignore[attr-defined]
        return memory
