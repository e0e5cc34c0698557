"""Part: a server for devices whose memories follow their gradients slowly.

A device uploads u, what the server should use beyond its memory q_m this round, and moves the
memory by a part of it, q_m <- q_m + η u. The server moves its average alike, so q̄ = mean(q_m)
after every round, whatever gets lost.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import broadcast, uploads
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.core.vector import Vector


@dataclass(frozen=True, eq=False)
class DampedState:
    """Model and average memory (float64)."""

    theta: Vector
    q_bar: Vector


@dataclass(frozen=True)
class DampedMemoryServer:
    """theta <- theta - alpha (q̄ + mean of the u that arrived), q̄ <- q̄ + eta (1/M) Σ u_m."""

    alpha: float
    eta: float

    @property
    def remembers(self) -> bool:
        """Yes: q̄ holds a share of every device's memory."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> DampedState:
        """Start from the given model and empty memories."""
        return DampedState(theta, torch.zeros_like(theta, dtype=torch.float64))

    def model(self, state: DampedState) -> Vector:
        """Return the current model."""
        return state.theta

    def orders(
        self, state: DampedState, fleet: Fleet, round: int, key: Key
    ) -> tuple[DampedState, dict[DeviceId, Packet]]:
        """Send the model to every device."""
        return state, broadcast(fleet, state.theta, round)

    def check(self, reply: Packet) -> None:
        """Take any vector; a reply without one stands for the zero vector."""

    def update(
        self, state: DampedState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> DampedState:
        """Step along the memory and the mean upload, and move the memory."""
        mean = fleet.mean(uploads(replies), weights=dict.fromkeys(replies, 1.0))
        complete = len(replies) == len(fleet.devices)
        share = mean if complete else fleet.share(uploads(replies))
        theta = (state.theta - self.alpha * (state.q_bar + mean)).to(state.theta.dtype)
        return DampedState(theta, state.q_bar + self.eta * share)

    def forget(
        self, state: DampedState, fleet: Fleet, device: DeviceId, replies: Iterable[Packet]
    ) -> DampedState:
        """Take the device's share out of the average memory."""
        sent = ((device, r.vector.decode()) for r in replies if r.vector is not None)
        return DampedState(state.theta, state.q_bar - self.eta * fleet.share(sent))
