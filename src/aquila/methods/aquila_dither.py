"""AQUILA-Dither: a grid with a zero on which every coordinate draws a lot, and few of them win.

Our own answer to AQUILA (Zhao et al., arXiv 2308.00258), whose grid has no zero and whose skip rule
hardly ever fires under gradient noise. What a gradient holds beyond the device's memory,
v = g - q_m, is sent as u = Q(v): a coordinate is told as one wide step, with a probability in
proportion to its size, and is silent otherwise. So u is v on average, and only a `density` of the
coordinates costs bytes. Server and device draw the same lots, so that the server knows where
winners are likely, and to say which they are takes about three bits each. The memory follows
slowly, q_m <- q_m + η u, and makes the method exact where gradients are: what devices will always
disagree about is learned, and then neither told nor drawn for any more.
Lots are noisy, and M devices average the noise. The server, which sees how much of it there is,
tells devices the share that holds it at a multiple of what the gradients tell (`noise_control`);
and a device whose loss rises doubles its share for a while.
docs/our-methods.md explains the method and links to results and proofs.

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
from aquila.core.method import Method, Oracle, Turn, Work, model_orders, uploads
from aquila.core.packet import Codes, Packet, WireError
from aquila.core.parameter import Bounds
from aquila.core.quantize import shared_dither
from aquila.core.random import Key
from aquila.core.vector import Vector, squared_norm
from aquila.methods.parts.damped import DampedMemoryDevice, DampedMemoryServer, DampedState
from aquila.methods.parts.factory import MAX_DENSITY, Alpha, WorkOption, method_factory
from aquila.methods.parts.memory import Memory
from aquila.methods.parts.noise_control import DensityLimits, NoiseEstimate, UploadStats, with_norms

LOSS_RISE = 0.2
"""Part of its first loss by which a device's loss may rise before its share doubles."""
BOOST_DECAY = 0.95
"""What is left of that growth after a round without such a rise."""
MAX_BOOST = 64.0

AutoDensity = Annotated[
    float,
    Bounds(
        "share of the coordinates sent in a round, at most, where no loss rises; 0: what holds the "
        "noise at a multiple of the signal, between 0.03 and 0.3 over the devices of a round",
        0,
        MAX_DENSITY,
    ),
]


def best_memory_rate(density: float) -> float:
    """Return the rate at which a memory learns most, whatever the gradient."""
    return 1 / (1 + 1 / density)


@dataclass(frozen=True)
class SharedDither:
    """Draws a fresh lot for every coordinate; the server knows them too."""

    density: float

    def __call__(self, v: Vector, key: Key) -> Codes | None:
        """Return the codes of the winners."""
        return shared_dither(v, self.density, key)


@dataclass(frozen=True, eq=False)
class AquilaDitherMemory:
    """State of a device: its memory, and how its loss went.

    `density_boost` is what the share is multiplied by, `lowest_loss` the least loss since that
    grew.
    """

    q: Vector
    first_loss: float = 0.0
    lowest_loss: float = math.inf
    density_boost: float = 1.0

    def after_loss(self, loss: float) -> "AquilaDitherMemory":
        """Take note of a loss: where it rises, lots are too noisy for the step."""
        first, lowest = self.first_loss or abs(loss), min(self.lowest_loss, loss)
        if loss - lowest > LOSS_RISE * first:
            return replace(
                self,
                first_loss=first,
                lowest_loss=loss,
                density_boost=min(MAX_BOOST, 2 * self.density_boost),
            )
        return replace(
            self,
            first_loss=first,
            lowest_loss=lowest,
            density_boost=max(1.0, BOOST_DECAY * self.density_boost),
        )


@dataclass(frozen=True)
class AquilaDitherDevice:
    """A device with a damped memory that draws for the share that the order names, or for more."""

    alpha: float
    work: Work

    def init(self, like: Vector) -> AquilaDitherMemory:
        """Start with nothing remembered."""
        return AquilaDitherMemory(torch.zeros_like(like))

    def step(
        self, state: AquilaDitherMemory, order: Packet, oracle: Oracle, key: Key
    ) -> Turn[AquilaDitherMemory]:
        """Send the winners of g - q_m, and let q_m follow; say so where more is sent than asked."""
        density, rate = (
            _positive_scalar(order, "share", MAX_DENSITY),
            _positive_scalar(order, "rate", 1.0),
        )
        density = _boosted_density(density, state.density_boost)
        damped = DampedMemoryDevice(self.alpha, rate, SharedDither(density), self.work)
        turn = damped.step(Memory(state.q), order, oracle, key)
        scalars = {"boost": state.density_boost} if state.density_boost > 1 else {}
        fallback_state = state.after_loss(turn.notes["loss"])
        return Turn(
            replace(fallback_state, q=turn.state.q),
            replace(turn.reply, scalars=scalars),
            {**turn.notes, "density": density},
            fallback=fallback_state,
        )


def _positive_scalar(order: Packet, name: str, maximum: float) -> float:
    """Return a number of an order that must be above zero."""
    value = order.scalar(name)
    if not 0 < value <= maximum:
        raise WireError(
            f"order of round {order.round} asks for a {name} of {value}; "
            f"it must be above 0 and at most {maximum:g}"
        )
    return value


def _boosted_density(density: float, boost: float) -> float:
    return min(MAX_DENSITY, boost * density)


@dataclass(frozen=True, eq=False)
class AquilaDitherState:
    """Model and average memory, the rate of the memories, and what the share goes by."""

    inner: DampedState
    rate: float
    estimate: NoiseEstimate


@dataclass(frozen=True)
class AquilaDitherServer:
    """A server with a damped memory that tells devices their share; 0: steered by the noise."""

    alpha: float
    density: float

    @property
    def remembers(self) -> bool:
        """Yes: q̄ holds a share of every device's memory."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> AquilaDitherState:
        """Start from the given model, empty memories, and a share that suits the fleet."""
        limits = DensityLimits.for_fleet(fleet, self.density)
        rate = best_memory_rate(limits.minimum)
        return AquilaDitherState(
            self._damped(rate).init(theta, fleet), rate, NoiseEstimate(limits.initial)
        )

    def model(self, state: AquilaDitherState) -> Vector:
        """Return the current model."""
        return state.inner.theta

    def orders(
        self, state: AquilaDitherState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[AquilaDitherState, dict[DeviceId, Packet]]:
        """Send the model, the share and the rate to every device."""
        scalars = {"share": state.estimate.density, "rate": state.rate}
        return state, model_orders(fleet, state.inner.theta, round_number, scalars=scalars)

    def check(self, reply: Packet) -> None:
        """Take any vector, or none for the zero vector, and a boost that a device may have."""
        boost = reply.scalars.get("boost", 1.0)
        if not 1 <= boost <= MAX_BOOST:
            raise WireError(
                f"reply of round {reply.round} has multiplied its share by {boost}; "
                f"1 to {MAX_BOOST:g} is allowed"
            )

    def update(
        self, state: AquilaDitherState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> AquilaDitherState:
        """Step along the memory and the mean upload, move the memory, and measure the noise."""
        squares: dict[DeviceId, float] = {}
        mean = fleet.mean(
            with_norms(uploads(replies), squares), weights=dict.fromkeys(replies, 1.0)
        )
        estimate = (
            self._updated_estimate(state, fleet, replies, mean, squares)
            if squares
            else state.estimate
        )
        inner = self._damped(state.rate).update_with_mean(state.inner, fleet, replies, mean)
        return AquilaDitherState(inner, state.rate, estimate)

    def _updated_estimate(
        self,
        state: AquilaDitherState,
        fleet: Fleet,
        replies: Mapping[DeviceId, Packet],
        mean: Vector,
        squares: Mapping[DeviceId, float],
    ) -> NoiseEstimate:
        density = state.estimate.density
        densities = {
            m: _boosted_density(density, replies[m].scalars.get("boost", 1.0)) for m in squares
        }
        stats = UploadStats.measure(fleet, replies, squares, densities)
        step, upload = squared_norm(state.inner.q_bar + mean), squared_norm(mean)
        signal = stats.signal(step, upload, len(replies), len(fleet.devices))
        return state.estimate.update(
            stats.noise_at_full_density, signal, DensityLimits.for_fleet(fleet, self.density)
        )

    def forget(
        self, state: AquilaDitherState, fleet: Fleet, device: DeviceId, replies: Iterable[Packet]
    ) -> AquilaDitherState:
        """Take the device's share out of the average memory."""
        inner = self._damped(state.rate).forget(state.inner, fleet, device, replies)
        return replace(state, inner=inner)

    def _damped(self, rate: float) -> DampedMemoryServer:
        return DampedMemoryServer(self.alpha, rate)


@method_factory(
    paper="this project, 2026; lottery after Wangni et al. 2018, memory after Mishchenko et al. "
    "2019",
    lost_reply="the mean upload is taken over the replies that arrived; a device whose reply was "
    "lost takes the change of its memory back, and the server reuses its memory",
)
def aquila_dither(
    alpha: Alpha = 0.1,
    density: AutoDensity = 0.0,
    work: WorkOption = "gradient",
) -> Method:
    """A grid with a zero on which every coordinate draws a lot: the few that win are sent."""
    return Method(
        "aquila_dither", AquilaDitherDevice(alpha, work), AquilaDitherServer(alpha, density)
    )
