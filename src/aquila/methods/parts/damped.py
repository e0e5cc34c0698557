"""Parts: devices whose memories follow their gradients slowly, and the server for them.

A device uploads u, an estimate of its gradient minus its memory q_m, and updates the memory by
q_m <- q_m + η u. The server steps along q̄ + mean(u) and updates q̄ in the same way. Therefore
q̄ = mean(q_m) after every round, even if messages are lost.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import (
    Oracle,
    Scalars,
    Turn,
    Work,
    local_work,
    order_scalars,
    theta_of,
    uploads,
)
from aquila.core.packet import Codes, Packet
from aquila.core.random import Key
from aquila.core.vector import Vector, error_ratio
from aquila.methods.parts.memory import Memory, decode_or_none


class Quantizer(Protocol):
    """An unbiased quantizer: vector to codes, or None if there is nothing to send."""

    def __call__(self, v: Vector, key: Key) -> Codes | None:
        """Quantize a vector with random numbers from the key."""


@dataclass(frozen=True)
class DampedMemoryDevice:
    """Sends the quantized difference between its gradient and its memory."""

    alpha: float
    eta: float
    quantizer: Quantizer
    work: Work

    def init(self, like: Vector) -> Memory:
        """Start with q_m = 0."""
        return Memory(torch.zeros_like(like))

    def step(self, state: Memory, order: Packet, oracle: Oracle, key: Key) -> Turn[Memory]:
        """Send u = Q(g - q_m) and add η u to q_m; skip if there is nothing to send."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        v = gradient - state.q
        codes = self.quantizer(v, key)
        if codes is None:
            return Turn(state, Packet(order.round), {"loss": loss})
        u = codes.decode()
        notes = {"loss": loss, "error_ratio": error_ratio(v, u)}
        return Turn(Memory(state.q + self.eta * u), Packet(order.round, codes), notes)

    def memory(self, state: Memory) -> Vector:
        """Return q_m."""
        return state.q


@dataclass(frozen=True, eq=False)
class DampedState:
    """Average memory (float64)."""

    q_bar: Vector


@dataclass(frozen=True)
class DampedMemoryServer:
    """Step: alpha (q̄ + mean of the u that arrived); q̄ <- q̄ + eta (1/M) Σ u_m.

    Args:
        alpha: Step size.
        eta: Rate of the memories.
    """

    alpha: float
    eta: float

    @property
    def remembers(self) -> bool:
        """True: q̄ averages the devices' memories."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> DampedState:
        """Start with empty memories."""
        return DampedState(torch.zeros_like(theta, dtype=torch.float64))

    def orders(
        self, state: DampedState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[DampedState, dict[DeviceId, Scalars]]:
        """Send the model to every device."""
        return state, order_scalars(fleet)

    def update(
        self, state: DampedState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[DampedState, Vector]:
        """Step along q̄ + mean upload, and update q̄."""
        # q̄ averages over all devices, and a device without a reply has not changed its memory
        mean, change = fleet.means(uploads(replies), replies)
        step = (state.q_bar + mean).mul_(self.alpha)
        return DampedState(change.mul_(self.eta).add_(state.q_bar)), step

    def memory(self, state: DampedState) -> Vector:
        """Return q̄."""
        return state.q_bar

    def contribution(self, reply: Packet) -> Vector | None:
        """Return the upload, of which the device's memory takes the fraction eta."""
        return decode_or_none(reply)

    def forget(
        self, state: DampedState, fleet: Fleet, device: DeviceId, contributions: Iterable[Vector]
    ) -> DampedState:
        """Subtract the device's uploads from the average memory."""
        sent = ((device, upload) for upload in contributions)
        return DampedState(state.q_bar - self.eta * fleet.mean_over_holders(sent))
