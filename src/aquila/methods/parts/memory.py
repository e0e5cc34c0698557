"""Part: a server that keeps the average q̄ of the devices' memories q_m, and no vector per device.

A device uploads the change Δq of its memory q_m; the server adds Δq / M to q̄. The runtime commits a
device's change only after the server has applied it. Therefore q̄ = mean(q_m) after every round, up
to the rounding of the devices' sums.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Scalars, order_scalars, uploads
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.core.vector import Vector


@dataclass(frozen=True, eq=False)
class Memory:
    """State of a device: its memory q_m, and whether it has uploaded before."""

    q: Vector
    has_uploaded: bool = False


@dataclass(frozen=True, eq=False)
class MemoryState:
    """State of the server: average memory (float64) and the sizes of the last steps.

    `drifts` holds one tuple per step, newest first. A tuple has the squared step for each group:
    ||θᵏ - θᵏ⁻¹||² under plain descent.
    """

    q_bar: Vector
    drifts: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class MemoryServer:
    """q̄ <- q̄ + (1/M) Σ Δq_m; the step is alpha q̄ (AQUILA, Algorithm 1, line 13).

    Orders carry the scalar `drift`: the sum or the average of the last `depth` squared steps.
    With a `gain` other than 1, the step counts the new changes that many times. The memory q̄ does
    not.
    """

    alpha: float
    depth: int = 1
    average_drift: bool = False
    gain: float = 1.0

    @property
    def remembers(self) -> bool:
        """True: q̄ averages the devices' memories."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> MemoryState:
        """Start with empty memories."""
        return MemoryState(torch.zeros_like(theta, dtype=torch.float64))

    def orders(
        self, state: MemoryState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[MemoryState, dict[DeviceId, Scalars]]:
        """Send model and drift to every device."""
        past = state.drifts or ((0.0,) * len(fleet.slices),)
        total = [sum(steps) for steps in zip(*past, strict=True)]
        drift = [t / len(past) for t in total] if self.average_drift else total
        return state, order_scalars(fleet, by_group={"drift": drift})

    def update(
        self, state: MemoryState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[MemoryState, Vector]:
        """Add the innovations to the average memory and step along it."""
        change = fleet.mean_over_holders(uploads(replies))
        direction = None if self.gain == 1 else state.q_bar + self.gain * change
        q_bar = change.add_(state.q_bar)  # in place: a copy of a large model takes memory
        direction = q_bar if direction is None else direction
        return step_along(direction, state, fleet, self.alpha, self.depth, q_bar)

    def memory(self, state: MemoryState) -> Vector:
        """Return q̄."""
        return state.q_bar

    def contribution(self, reply: Packet) -> Vector | None:
        """Return the change of the device's memory."""
        return decode_or_none(reply)

    def forget(
        self, state: MemoryState, fleet: Fleet, device: DeviceId, contributions: Iterable[Vector]
    ) -> MemoryState:
        """Subtract the device's uploads from the average memory."""
        return subtract_device(state, fleet, device, contributions)


def step_along(
    direction: Vector, state: MemoryState, fleet: Fleet, alpha: float, depth: int, q_bar: Vector
) -> tuple[MemoryState, Vector]:
    """Return the state with a new average memory and the squared step, and the step."""
    drift = tuple(alpha**2 * n for n in fleet.squared_norms(direction))
    return MemoryState(q_bar, (drift, *state.drifts)[:depth]), alpha * direction


def decode_or_none(reply: Packet) -> Vector | None:
    """Return the vector of a reply, None for a skip."""
    return None if reply.vector is None else reply.vector.decode()


def subtract_device(
    state: MemoryState, fleet: Fleet, device: DeviceId, changes: Iterable[Vector]
) -> MemoryState:
    """Subtract these changes of a device's memory from the average."""
    return replace(
        state, q_bar=state.q_bar - fleet.mean_over_holders((device, change) for change in changes)
    )
