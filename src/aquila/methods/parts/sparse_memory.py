"""Parts: servers that send devices the density of their uploads, with and without a memory."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Scalars, Work, order_scalars
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.methods.parts.damped import DampedMemoryServer, DampedState
from aquila.methods.parts.density import DENSITY_SCALAR, DensityRule
from aquila.methods.parts.mean import MeanServer, NoState
from aquila.methods.parts.memory import decode_or_none
from aquila.methods.parts.periodic_uploads import LARGE_MODEL

RATE_SCALAR = "rate"
"""Name of the rate η of the memories among the scalars of an order frame."""

MemoryOption = Annotated[
    Literal["auto", "device", "none"],
    "memories: device keeps one on each device, none keeps no memory; auto: device, but none for "
    "large models with local epochs",
]


def no_scalars(fleet: Fleet, round_number: int) -> Scalars:
    """Return no scalars for any round."""
    return {}


@dataclass(frozen=True)
class SparseMemoryServer:
    """Steps along q̄ plus the mean upload, like `DampedMemoryServer`.

    Args:
        alpha: Step size.
        density: Density of the uploads; 0: that of the rule.
        rule: The default density.
        memory_rate: Returns the rate η for a density.
        more_scalars: Returns further scalars of the orders of a round.
        every: Rounds per upload, whose density is multiplied by them; 0: automatic.
        max_dimension: Largest model whose devices get a rate. Those of larger ones have no memory.
    """

    alpha: float
    density: float
    rule: DensityRule
    # repr=False: Flower compares methods of different processes by their repr
    memory_rate: Callable[[float], float] = field(repr=False)
    more_scalars: Callable[[Fleet, int], Scalars] = field(default=no_scalars, repr=False)
    every: int = 1
    max_dimension: float = math.inf

    @property
    def remembers(self) -> bool:
        """True: q̄ averages the devices' memories."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> DampedState:
        """Start with empty memories."""
        return self._damped(fleet).init(theta, fleet)

    def orders(
        self, state: DampedState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[DampedState, dict[DeviceId, Scalars]]:
        """Send the model, the density and the rate, if any, to every device."""
        rate = self._rate(fleet)
        scalars = {DENSITY_SCALAR: self._density(fleet), **({RATE_SCALAR: rate} if rate else {})}
        more = self.more_scalars(fleet, round_number)
        return state, order_scalars(fleet, scalars={**scalars, **more})

    def update(
        self, state: DampedState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[DampedState, Vector]:
        """Step along q̄ + mean upload, and update q̄."""
        return self._damped(fleet).update(state, fleet, replies)

    def memory(self, state: DampedState) -> Vector:
        """Return q̄."""
        return state.q_bar

    def contribution(self, reply: Packet) -> Vector | None:
        """Return the upload, of which the device's memory takes a constant fraction."""
        return decode_or_none(reply)

    def forget(
        self, state: DampedState, fleet: Fleet, device: DeviceId, contributions: Iterable[Vector]
    ) -> DampedState:
        """Subtract the device's uploads from the average memory."""
        return self._damped(fleet).forget(state, fleet, device, contributions)

    def _density(self, fleet: Fleet) -> float:
        return self.rule.of_uploads(fleet, self.density, self.every)

    def _damped(self, fleet: Fleet) -> DampedMemoryServer:
        return DampedMemoryServer(self.alpha, self._rate(fleet))

    def _rate(self, fleet: Fleet) -> float:
        has_memory = fleet.dimension <= self.max_dimension
        return self.memory_rate(self._density(fleet)) if has_memory else 0.0


def sparse_server(
    alpha: float,
    density: float,
    rule: DensityRule,
    memory_rate: Callable[[float], float],
    every: int,
    memory: str,
    work: Work,
) -> "SparseMeanServer | SparseMemoryServer":
    """Return the server for a value of the option `memory`.

    Args:
        alpha: Step size.
        density: Density per round; 0: that of the rule.
        rule: The default density.
        memory_rate: Returns the rate η for a density.
        every: Rounds per upload; 0: automatic.
        memory: Value of `MemoryOption`.
        work: What a device computes per round.
    """
    if memory == "none":
        return SparseMeanServer(alpha, density, rule, every)
    largest = LARGE_MODEL if memory == "auto" and work == "epochs" else math.inf
    return SparseMemoryServer(alpha, density, rule, memory_rate, every=every, max_dimension=largest)


@dataclass(frozen=True)
class SparseMeanServer:
    """Steps along the mean upload of devices without memories, and sends them their density.

    Args:
        alpha: Step size.
        density: Density per round; 0: that of the rule.
        rule: The default density.
        every: Rounds per upload; 0: automatic.
    """

    alpha: float
    density: float
    rule: DensityRule
    every: int = 1

    @property
    def steps_along_mean(self) -> bool:
        """True: the step follows from the mean of the uploads."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> NoState:
        """Start without state."""
        return NoState()

    def orders(
        self, state: NoState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[NoState, dict[DeviceId, Scalars]]:
        """Send the model and the density to every device."""
        density = self.rule.of_uploads(fleet, self.density, self.every)
        return state, order_scalars(fleet, scalars={DENSITY_SCALAR: density})

    def update(
        self, state: NoState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[NoState, Vector]:
        """Step along the mean upload."""
        return MeanServer(self.alpha).update(state, fleet, replies)
