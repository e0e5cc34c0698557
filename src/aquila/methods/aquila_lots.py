"""AQUILA-Lots: a grid with a zero on which every coordinate draws a lot, and few of them win.

Our own answer to AQUILA (Zhao et al., arXiv 2308.00258), whose grid has no zero and whose skip rule
hardly ever fires under gradient noise. What a gradient holds beyond the device's memory,
v = g - q_m, is sent as u = Q(v): a coordinate is told as one wide step, with a probability in
proportion to its size, and is silent otherwise. So u is v on average, and only a `share` of the
coordinates costs bytes. The memory follows slowly, q_m <- q_m + η u, and makes the method exact
where gradients are: what devices will always disagree about is learned, and then neither told nor
drawn for any more.
Lots are noisy, and M devices average the noise: where a loss is steep in all directions, α L may be
about 2 M `share` at most. So the server, which knows how many devices and coordinates there are,
tells devices that are few, or whose model is small, to send more; and a device whose loss rises
doubles its share for a while.
docs/beyond.md has the derivation, the measurements and what did not work.

Drawing in proportion to size is that of Wangni et al. (2018, arXiv 1710.09854) and of QSGD
(Alistarh et al. 2017, arXiv 1610.02132), the damped memory that of DIANA (Mishchenko et al. 2019,
arXiv 1901.09269).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method, Oracle, Turn, Work, broadcast
from aquila.core.packet import Codes, Packet, WireError
from aquila.core.parameter import Bounds
from aquila.core.quantize import shared_lottery
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.methods.catalog import MOST_SHARE, Alpha, WorkOption, entry
from aquila.methods.damped import DampedMemoryDevice, DampedMemoryServer, DampedState
from aquila.methods.memory import Memory

LEAST_SHARE = 0.004
LEAST_IN_A_ROUND = 0.04
"""Least share times devices of a round: the noise of their mean goes by its inverse."""
LEAST_AT_A_COORDINATE = 0.02
"""The same for those that hold a coordinate: half of the devices may be narrow."""
LEAST_WINNERS = 64
"""In the whole model; half as many would not halve the bytes, since a frame has a header."""

RISE = 0.2
"""Part of its first loss by which a device's loss may rise before its share doubles."""
CALM = 0.95
"""What is left of that growth after a round without such a rise."""
MOST_BOOST = 64.0

AutoShare = Annotated[
    float,
    Bounds(
        "share of the coordinates sent in a round; 0: 0.004, and more with fewer than ten devices "
        "in a round or 16,000 coordinates",
        0,
        MOST_SHARE,
    ),
]


def share_for(fleet: Fleet) -> float:
    """Return a share whose noise is bearable for as many devices and coordinates."""
    devices = fleet.participation * len(fleet.devices)
    holders = fleet.participation * fleet.fewest_holders
    enough = (
        LEAST_SHARE,
        LEAST_IN_A_ROUND / devices,
        LEAST_AT_A_COORDINATE / holders,
        LEAST_WINNERS / fleet.dimension,
    )
    return min(MOST_SHARE, max(enough))


def rate_for(share: float) -> float:
    """Return the rate at which a memory learns most, whatever the gradient."""
    return 1 / (1 + 1 / share)


@dataclass(frozen=True)
class Lottery:
    """Draws a fresh lot for every coordinate; the server knows them too."""

    share: float

    def __call__(self, v: Vector, key: Key) -> Codes | None:
        """Return the codes of the winners."""
        return shared_lottery(v, self.share, key)


@dataclass(frozen=True, eq=False)
class LotsMemory:
    """State of a device: its memory, and how its loss went.

    `boost` is what the share is multiplied by, `least` the least loss since that grew.
    """

    q: Vector
    first: float = 0.0
    least: float = math.inf
    boost: float = 1.0

    def after(self, loss: float) -> "LotsMemory":
        """Take note of a loss: where it rises, lots are too noisy for the step."""
        first, least = self.first or abs(loss), min(self.least, loss)
        if loss - least > RISE * first:
            return replace(self, first=first, least=loss, boost=min(MOST_BOOST, 2 * self.boost))
        return replace(self, first=first, least=least, boost=max(1.0, CALM * self.boost))


@dataclass(frozen=True)
class AquilaLotsDevice:
    """A device with a damped memory that draws for the share that the order names, or for more."""

    alpha: float
    work: Work

    def init(self, like: Vector) -> LotsMemory:
        """Start with nothing remembered."""
        return LotsMemory(torch.zeros_like(like))

    def step(self, state: LotsMemory, order: Packet, oracle: Oracle, key: Key) -> Turn[LotsMemory]:
        """Send the winners of g - q_m, and let q_m follow."""
        share = order.scalar("share")
        if not 0 < share <= MOST_SHARE:
            raise WireError(
                f"order of round {order.round} asks for a share of {share}; "
                f"it must be above 0 and at most {MOST_SHARE}"
            )
        quantizer = Lottery(min(MOST_SHARE, state.boost * share))
        damped = DampedMemoryDevice(self.alpha, rate_for(share), quantizer, self.work)
        turn = damped.step(Memory(state.q), order, oracle, key)
        watchful = state.after(turn.notes["loss"])
        return Turn(replace(watchful, q=turn.state.q), turn.reply, turn.notes, fallback=watchful)


@dataclass(frozen=True, eq=False)
class LotsState:
    """Model and average memory, and the share that devices are told."""

    inner: DampedState
    share: float


@dataclass(frozen=True)
class AquilaLotsServer:
    """A server with a damped memory that tells devices their share; 0: what suits the fleet."""

    alpha: float
    share: float

    @property
    def remembers(self) -> bool:
        """Yes: q̄ holds a share of every device's memory."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> LotsState:
        """Start from the given model and empty memories, and settle the share."""
        share = self.share or share_for(fleet)
        return LotsState(self._damped(share).init(theta, fleet), share)

    def model(self, state: LotsState) -> Vector:
        """Return the current model."""
        return state.inner.theta

    def orders(
        self, state: LotsState, fleet: Fleet, round: int, key: Key
    ) -> tuple[LotsState, dict[DeviceId, Packet]]:
        """Send the model and the share to every device."""
        return state, broadcast(fleet, state.inner.theta, round, scalars={"share": state.share})

    def check(self, reply: Packet) -> None:
        """Take any vector; a reply without one stands for the zero vector."""

    def update(
        self, state: LotsState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> LotsState:
        """Step along the memory and the mean upload, and move the memory."""
        inner = self._damped(state.share).update(state.inner, fleet, replies)
        return replace(state, inner=inner)

    def forget(
        self, state: LotsState, fleet: Fleet, device: DeviceId, replies: Iterable[Packet]
    ) -> LotsState:
        """Take the device's share out of the average memory."""
        inner = self._damped(state.share).forget(state.inner, fleet, device, replies)
        return replace(state, inner=inner)

    def _damped(self, share: float) -> DampedMemoryServer:
        return DampedMemoryServer(self.alpha, rate_for(share))


@entry(
    paper="this project, 2026; lottery after Wangni et al. 2018, memory after Mishchenko et al. "
    "2019",
    lost_reply="the mean upload is taken over the replies that arrived; a device whose reply was "
    "lost takes the change of its memory back, and the server reuses its memory",
)
def aquila_lots(
    alpha: Alpha = 0.1,
    share: AutoShare = 0.0,
    work: WorkOption = "gradient",
) -> Method:
    """A grid with a zero on which every coordinate draws a lot: the few that win are sent."""
    return Method("aquila_lots", AquilaLotsDevice(alpha, work), AquilaLotsServer(alpha, share))
