"""AQUILA-Lots: a grid with a zero on which every coordinate draws a lot, and few of them win.

Our own answer to AQUILA (Zhao et al., arXiv 2308.00258), whose grid has no zero and whose skip rule
hardly ever fires under gradient noise. What a gradient holds beyond the device's memory,
v = g - q_m, is sent as u = Q(v): a coordinate is told as one wide step, with a probability in
proportion to its size, and is silent otherwise. So u is v on average, and only a `share` of the
coordinates costs bytes. The memory follows slowly, q_m <- q_m + η u, and makes the method exact
where gradients are: what devices will always disagree about is learned, and then neither told nor
drawn for any more.
Lots are noisy, and M devices average the noise: where a loss is steep in all directions, α L may be
about 2 M `share` at most. So the server, which knows both, tells devices that are few, or whose
model is small, to send more.
docs/beyond.md has the derivation, the measurements and what did not work.

Drawing in proportion to size is that of Wangni et al. (2018, arXiv 1710.09854) and of QSGD
(Alistarh et al. 2017, arXiv 1610.02132), the damped memory that of DIANA (Mishchenko et al. 2019,
arXiv 1901.09269).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method, Oracle, Turn, Work, broadcast
from aquila.core.packet import Codes, Packet, WireError
from aquila.core.parameter import Bounds
from aquila.core.quantize import lottery
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.methods.catalog import MOST_SHARE, Alpha, WorkOption, entry
from aquila.methods.damped import DampedMemoryDevice, DampedMemoryServer, DampedState
from aquila.methods.memory import Memory

LEAST_SHARE = 0.004
LEAST_TOTAL = 0.04
"""Least share times devices: what the noise of their mean goes by."""
LEAST_WINNERS = 64
"""Of a device; fewer hardly save, since a frame's header weighs as much."""

AutoShare = Annotated[
    float,
    Bounds(
        "share of the coordinates sent in a round; 0: 0.004, and more with fewer than ten devices "
        "or 16,000 coordinates",
        0,
        MOST_SHARE,
    ),
]


def share_for(fleet: Fleet) -> float:
    """Return a share whose noise is bearable for as many devices and coordinates."""
    enough_devices = LEAST_TOTAL / max(1, len(fleet.devices))
    enough_winners = LEAST_WINNERS / max(1, fleet.dimension)
    return min(MOST_SHARE, max(LEAST_SHARE, enough_devices, enough_winners))


def rate_for(share: float) -> float:
    """Return the rate at which a memory learns most, whatever the gradient."""
    return 1 / (1 + 1 / share)


@dataclass(frozen=True)
class Lottery:
    """Draws a fresh lot for every coordinate."""

    share: float

    def __call__(self, v: Vector, key: Key) -> Codes | None:
        """Return the codes of the winners."""
        return lottery(v, self.share, key.uniform(v))


@dataclass(frozen=True)
class AquilaLotsDevice:
    """A device with a damped memory that draws for the share that the order names."""

    alpha: float
    work: Work

    def init(self, like: Vector) -> Memory:
        """Start with nothing remembered."""
        return self._drawing(LEAST_SHARE).init(like)

    def step(self, state: Memory, order: Packet, oracle: Oracle, key: Key) -> Turn[Memory]:
        """Send the winners of g - q_m, and let q_m follow."""
        share = order.scalar("share")
        if not 0 < share <= MOST_SHARE:
            raise WireError(
                f"order of round {order.round} asks for a share of {share}; "
                f"it must be above 0 and at most {MOST_SHARE}"
            )
        return self._drawing(share).step(state, order, oracle, key)

    def _drawing(self, share: float) -> DampedMemoryDevice:
        return DampedMemoryDevice(self.alpha, rate_for(share), Lottery(share), self.work)


@dataclass(frozen=True)
class AquilaLotsServer:
    """A server with a damped memory that tells devices their share; 0: what suits the fleet."""

    alpha: float
    share: float

    @property
    def remembers(self) -> bool:
        """Yes: q̄ holds a share of every device's memory."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> DampedState:
        """Start from the given model and empty memories."""
        return self._damped(fleet).init(theta, fleet)

    def model(self, state: DampedState) -> Vector:
        """Return the current model."""
        return state.theta

    def orders(
        self, state: DampedState, fleet: Fleet, round: int, key: Key
    ) -> tuple[DampedState, dict[DeviceId, Packet]]:
        """Send the model and the share to every device."""
        return state, broadcast(fleet, state.theta, round, scalars={"share": self._share(fleet)})

    def check(self, reply: Packet) -> None:
        """Take any vector; a reply without one stands for the zero vector."""

    def update(
        self, state: DampedState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> DampedState:
        """Step along the memory and the mean upload, and move the memory."""
        return self._damped(fleet).update(state, fleet, replies)

    def forget(
        self, state: DampedState, fleet: Fleet, device: DeviceId, replies: Iterable[Packet]
    ) -> DampedState:
        """Take the device's share out of the average memory."""
        return self._damped(fleet).forget(state, fleet, device, replies)

    def _damped(self, fleet: Fleet) -> DampedMemoryServer:
        return DampedMemoryServer(self.alpha, rate_for(self._share(fleet)))

    def _share(self, fleet: Fleet) -> float:
        return self.share or share_for(fleet)


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
