"""Part: a server that keeps the average q̄ of what each device sent last, and nothing a device.

A device uploads the change Δq of its memory q_m; the server adds its share to q̄. Because the
runtime lets a device keep a change only once the server has applied it, q̄ = mean(q_m) after every
round, up to the rounding of the devices' sums.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import model_orders, uploads
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.core.vector import Vector


@dataclass(frozen=True, eq=False)
class Memory:
    """State of a device: the gradient that the server believes it has, and if one was ever sent."""

    q: Vector
    has_uploaded: bool = False


@dataclass(frozen=True, eq=False)
class MemoryState:
    """State of the server: model, average memory (float64), and how far the last steps went.

    `drifts` holds ||θᵏ - θᵏ⁻¹||² for each group of the fleet, newest step first.
    """

    theta: Vector
    q_bar: Vector
    drifts: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class MemoryServer:
    """q̄ <- q̄ + (1/M) Σ Δq_m; theta <- theta - alpha q̄ (AQUILA, Algorithm 1, line 13).

    Orders carry `drift`: the sum of the last `depth` squared steps, or their average.
    """

    alpha: float
    depth: int = 1
    average_drift: bool = False

    @property
    def remembers(self) -> bool:
        """Yes: q̄ holds a share of every device's memory."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> MemoryState:
        """Start from the given model and empty memories."""
        return MemoryState(theta, torch.zeros_like(theta, dtype=torch.float64))

    def model(self, state: MemoryState) -> Vector:
        """Return the current model."""
        return state.theta

    def orders(
        self, state: MemoryState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[MemoryState, dict[DeviceId, Packet]]:
        """Send model and drift to every device."""
        past = state.drifts or ((0.0,) * len(fleet.slices),)
        total = [sum(steps) for steps in zip(*past, strict=True)]
        drift = [t / len(past) for t in total] if self.average_drift else total
        return state, model_orders(fleet, state.theta, round_number, by_group={"drift": drift})

    def check(self, reply: Packet) -> None:
        """Take any vector; a reply without one leaves the memory as it is."""

    def update(
        self, state: MemoryState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> MemoryState:
        """Add the innovations to the average memory and step along it."""
        q_bar = state.q_bar + fleet.mean_over_holders(uploads(replies))
        return descend(state, fleet, self.alpha, self.depth, q_bar, direction=q_bar)

    def forget(
        self, state: MemoryState, fleet: Fleet, device: DeviceId, replies: Iterable[Packet]
    ) -> MemoryState:
        """Take the device's share out of the average memory."""
        sent = (r.vector.decode() for r in replies if r.vector is not None)
        return subtract_device(state, fleet, device, sent)


def descend(
    state: MemoryState, fleet: Fleet, alpha: float, depth: int, q_bar: Vector, direction: Vector
) -> MemoryState:
    """Step along a direction and remember how far it went."""
    theta = (state.theta - alpha * direction).to(state.theta.dtype)
    drift = tuple(alpha**2 * n for n in fleet.squared_norms(direction))
    return MemoryState(theta, q_bar, (drift, *state.drifts)[:depth])


def subtract_device(
    state: MemoryState, fleet: Fleet, device: DeviceId, changes: Iterable[Vector]
) -> MemoryState:
    """Take these changes of a device's memory out of the average."""
    return replace(
        state, q_bar=state.q_bar - fleet.mean_over_holders((device, change) for change in changes)
    )
