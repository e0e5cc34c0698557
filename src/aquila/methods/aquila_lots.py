"""AQUILA-Lots: a grid with a zero on which every coordinate draws a lot, and few of them win.

Our own answer to AQUILA (Zhao et al., arXiv 2308.00258), whose grid has no zero and whose skip rule
hardly ever fires under gradient noise. What a gradient holds beyond the device's memory,
v = g - q_m, is sent as u = Q(v): a coordinate is told as one wide step, with a probability in
proportion to its size, and is silent otherwise. So u is v on average, and only a `share` of the
coordinates costs bytes. Server and device draw the same lots, so that the server knows where
winners are likely, and to say which they are takes about three bits each. The memory follows
slowly, q_m <- q_m + η u, and makes the method exact where gradients are: what devices will always
disagree about is learned, and then neither told nor drawn for any more.
Lots are noisy, and M devices average the noise. The server, which sees how much of it there is,
tells devices the share that holds it at a multiple of what the gradients tell (`steering`); and a
device whose loss rises doubles its share for a while.
docs/beyond.md has the derivation, the measurements and what did not work.

Drawing in proportion to size is that of Wangni et al. (2018, arXiv 1710.09854) and of QSGD
(Alistarh et al. 2017, arXiv 1610.02132), the damped memory that of DIANA (Mishchenko et al. 2019,
arXiv 1901.09269), coding by randomness that both sides know that of dithered quantization (Ziv
1985).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method, Oracle, Turn, Work, broadcast, uploads
from aquila.core.packet import Codes, Packet, WireError
from aquila.core.parameter import Bounds
from aquila.core.quantize import shared_lottery
from aquila.core.random import Key
from aquila.core.vector import Vector, squared_norm
from aquila.methods.catalog import MOST_SHARE, Alpha, WorkOption, entry
from aquila.methods.damped import DampedMemoryDevice, DampedMemoryServer, DampedState
from aquila.methods.memory import Memory
from aquila.methods.steering import Gauge, Limits, Mean, tallied

RISE = 0.2
"""Part of its first loss by which a device's loss may rise before its share doubles."""
CALM = 0.95
"""What is left of that growth after a round without such a rise."""
MOST_BOOST = 64.0

AutoShare = Annotated[
    float,
    Bounds(
        "share of the coordinates sent in a round, at most, where no loss rises; 0: what holds the "
        "noise at a multiple of the signal, between 0.03 and 0.3 over the devices of a round",
        0,
        MOST_SHARE,
    ),
]


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
        """Send the winners of g - q_m, and let q_m follow; say so where more is sent than asked."""
        share, rate = _asked(order, "share", MOST_SHARE), _asked(order, "rate", 1.0)
        share = _boosted(share, state.boost)
        damped = DampedMemoryDevice(self.alpha, rate, Lottery(share), self.work)
        turn = damped.step(Memory(state.q), order, oracle, key)
        boosted = {"boost": state.boost} if state.boost > 1 else {}
        watchful = state.after(turn.notes["loss"])
        return Turn(
            replace(watchful, q=turn.state.q),
            replace(turn.reply, scalars=boosted),
            {**turn.notes, "share": share},
            fallback=watchful,
        )


def _asked(order: Packet, name: str, most: float) -> float:
    """Return a number of an order that must be above zero."""
    asked = order.scalar(name)
    if not 0 < asked <= most:
        raise WireError(
            f"order of round {order.round} asks for a {name} of {asked}; "
            f"it must be above 0 and at most {most:g}"
        )
    return asked


def _boosted(share: float, boost: float) -> float:
    return min(MOST_SHARE, boost * share)


@dataclass(frozen=True, eq=False)
class LotsState:
    """Model and average memory, the rate of the memories, and what the share goes by."""

    inner: DampedState
    rate: float
    gauge: Gauge


@dataclass(frozen=True)
class AquilaLotsServer:
    """A server with a damped memory that tells devices their share; 0: steered by the noise."""

    alpha: float
    share: float

    @property
    def remembers(self) -> bool:
        """Yes: q̄ holds a share of every device's memory."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> LotsState:
        """Start from the given model, empty memories, and a share that suits the fleet."""
        limits = Limits.of(fleet, self.share)
        rate = rate_for(limits.least)
        return LotsState(self._damped(rate).init(theta, fleet), rate, Gauge(limits.first))

    def model(self, state: LotsState) -> Vector:
        """Return the current model."""
        return state.inner.theta

    def orders(
        self, state: LotsState, fleet: Fleet, round: int, key: Key
    ) -> tuple[LotsState, dict[DeviceId, Packet]]:
        """Send the model, the share and the rate to every device."""
        scalars = {"share": state.gauge.share, "rate": state.rate}
        return state, broadcast(fleet, state.inner.theta, round, scalars=scalars)

    def check(self, reply: Packet) -> None:
        """Take any vector, or none for the zero vector, and a boost that a device may have."""
        boost = reply.scalars.get("boost", 1.0)
        if not 1 <= boost <= MOST_BOOST:
            raise WireError(
                f"reply of round {reply.round} has multiplied its share by {boost}; "
                f"1 to {MOST_BOOST:g} is allowed"
            )

    def update(
        self, state: LotsState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> LotsState:
        """Step along the memory and the mean upload, move the memory, and measure the noise."""
        squares: dict[DeviceId, float] = {}
        mean = fleet.mean(tallied(uploads(replies), squares), weights=dict.fromkeys(replies, 1.0))
        gauge = self._measured(state, fleet, replies, mean, squares) if squares else state.gauge
        inner = self._damped(state.rate).moved(state.inner, fleet, replies, mean)
        return LotsState(inner, state.rate, gauge)

    def _measured(
        self,
        state: LotsState,
        fleet: Fleet,
        replies: Mapping[DeviceId, Packet],
        mean: Vector,
        squares: Mapping[DeviceId, float],
    ) -> Gauge:
        share = state.gauge.share
        drawn = {m: _boosted(share, replies[m].scalars.get("boost", 1.0)) for m in squares}
        seen = Mean.of(fleet, replies, squares, drawn)
        step, upload = squared_norm(state.inner.q_bar + mean), squared_norm(mean)
        signal = seen.signal(step, upload, len(replies), len(fleet.devices))
        return state.gauge.after(seen.noise_at_one, signal, Limits.of(fleet, self.share))

    def forget(
        self, state: LotsState, fleet: Fleet, device: DeviceId, replies: Iterable[Packet]
    ) -> LotsState:
        """Take the device's share out of the average memory."""
        inner = self._damped(state.rate).forget(state.inner, fleet, device, replies)
        return replace(state, inner=inner)

    def _damped(self, rate: float) -> DampedMemoryServer:
        return DampedMemoryServer(self.alpha, rate)


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
