"""AQUILA-Dither: unbiased sparse uploads with a dither that the server derives too.

This project's alternative to AQUILA (Zhao et al., arXiv 2308.00258). AQUILA's grid has no zero, and
its skip rule rarely fires under gradient noise.

A round on device m with gradient g and memory q_m:

    v = g - q_m,    u = Q(v),    q_m <- q_m + η u

The server keeps q̄, the mean of the memories. It updates theta <- theta - α (q̄ + mean u) and
q̄ <- q̄ + η mean u (`parts/damped.py`).

- The quantizer Q sends a coordinate as one wide step with probability proportional to its size, and
  as zero otherwise. So u equals v on average, and only a fraction of the coordinates, the
  `density`, costs bytes.
- The random numbers that decide are the dither. It comes from a seed in the frame, so the server
  derives it too and knows where nonzero coordinates are likely. Each then costs about three bits.
- The memory learns the part of the gradients in which devices always differ. That part is then no
  longer sent and adds no noise. With full gradients the method thus reaches the exact optimum.
- Uploads are noisy. The server measures the noise and chooses the density that keeps it at a fixed
  multiple of the signal (`parts/noise_control.py`).
- A rising loss shows that the noise is too large for the step size. A device whose loss rises
  doubles its own density for a while (the boost).

docs/our-methods.md explains the method and links to results and proofs.

Sampling in proportion to size follows Wangni et al. (2018, arXiv 1710.09854) and QSGD (Alistarh et
al. 2017, arXiv 1610.02132). The damped memory is DIANA's (Mishchenko et al. 2019, arXiv
1901.09269). Dithered quantization (Ziv 1985) also codes with randomness that both sides know.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method, Oracle, Scalars, Turn, Work, order_scalars, uploads
from aquila.core.packet import Codes, Packet, WireError
from aquila.core.parameter import Bounds
from aquila.core.quantize import shared_dither
from aquila.core.random import Key
from aquila.core.vector import Vector, squared_norm
from aquila.methods.parts.damped import DampedMemoryDevice, DampedMemoryServer, DampedState
from aquila.methods.parts.factory import MAX_DENSITY, Alpha, WorkOption, method_factory
from aquila.methods.parts.memory import Memory, decode_or_none
from aquila.methods.parts.noise_control import (
    DensityLimits,
    NoiseEstimate,
    UploadStats,
    record_norms,
)

LOSS_RISE = 0.2
"""A device doubles its boost if its loss has risen by more than this fraction of its first loss."""
BOOST_DECAY = 0.95
"""Factor on the boost after each round without such a rise."""
MAX_BOOST = 64.0
DENSITY_SCALAR = "share"
"""Name of the density among the scalars of an order frame."""

AutoDensity = Annotated[
    float,
    Bounds(
        "fraction of the coordinates sent per round, at most, unless a device's loss rises; "
        "0: the server chooses it between 0.03 and 0.3 divided by the devices per round",
        0,
        MAX_DENSITY,
    ),
]


def best_memory_rate(density: float) -> float:
    """Return the rate η at which the error of the memory shrinks fastest in the worst case.

    It is 1 / (1 + ω), where ω = 1 / density bounds the noise of an upload: E||u - v||² <= ω ||v||².
    """
    return 1 / (1 + 1 / density)


@dataclass(frozen=True)
class SharedDither:
    """Quantizer with a new dither per upload, which the server derives from the same seed."""

    density: float

    def __call__(self, v: Vector, key: Key) -> Codes | None:
        """Return the codes, or None if no coordinate is sent."""
        return shared_dither(v, self.density, key)


@dataclass(frozen=True, eq=False)
class DitherDeviceState:
    """State of a device: its memory, the history of its loss, and its boost.

    Attributes:
        q: The memory q_m.
        first_loss: Magnitude of the loss in the first round, 0 before it.
        lowest_loss: Lowest loss since the boost last doubled.
        density_boost: Factor on the density of the order.
    """

    q: Vector
    first_loss: float = 0.0
    lowest_loss: float = math.inf
    density_boost: float = 1.0

    def after_loss(self, loss: float) -> "DitherDeviceState":
        """Return the state after a round with this loss: the boost doubles or decays."""
        first, lowest = self.first_loss or abs(loss), min(self.lowest_loss, loss)
        if loss - lowest > LOSS_RISE * first:
            lowest, boost = loss, min(MAX_BOOST, 2 * self.density_boost)
        else:
            boost = max(1.0, BOOST_DECAY * self.density_boost)
        return replace(self, first_loss=first, lowest_loss=lowest, density_boost=boost)


@dataclass(frozen=True)
class AquilaDitherDevice:
    """A device with a damped memory. It uses the density of the order times its own boost."""

    alpha: float
    work: Work

    def init(self, like: Vector) -> DitherDeviceState:
        """Start with q_m = 0."""
        return DitherDeviceState(torch.zeros_like(like))

    def step(
        self, state: DitherDeviceState, order: Packet, oracle: Oracle, key: Key
    ) -> Turn[DitherDeviceState]:
        """Send u = Q(g - q_m) and add η u to q_m; report a boost above 1 to the server.

        If the reply is lost, the device rolls q_m back but keeps what it learnt from the loss.
        """
        requested = _positive_scalar(order, DENSITY_SCALAR, MAX_DENSITY)
        rate = _positive_scalar(order, "rate", 1.0)
        density = _boosted_density(requested, state.density_boost)
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

    def memory(self, state: DitherDeviceState) -> Vector:
        """Return q_m."""
        return state.q


def _positive_scalar(order: Packet, name: str, maximum: float) -> float:
    """Return a scalar of an order that must be above zero."""
    value = order.scalar(name)
    if not 0 < value <= maximum:
        raise WireError(
            f"the order of round {order.round} has {name} = {value}; "
            f"it must be above 0 and at most {maximum:g}"
        )
    return value


def _boosted_density(density: float, boost: float) -> float:
    return min(MAX_DENSITY, boost * density)


@dataclass(frozen=True, eq=False)
class DitherServerState:
    """State of the server: average memory, the rate η, and the noise estimate."""

    inner: DampedState
    rate: float
    estimate: NoiseEstimate


@dataclass(frozen=True)
class AquilaDitherServer:
    """A server with a damped memory that sends devices their density.

    With `density` 0 it chooses the density from the noise that it measures.
    """

    alpha: float
    density: float

    @property
    def remembers(self) -> bool:
        """True: q̄ averages the devices' memories."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> DitherServerState:
        """Start with empty memories and the fleet's initial density."""
        limits = DensityLimits.for_fleet(fleet, self.density)
        rate = best_memory_rate(limits.minimum)  # at any higher density the memory is stable, too
        return DitherServerState(
            self._damped(rate).init(theta, fleet), rate, NoiseEstimate(limits.initial)
        )

    def orders(
        self, state: DitherServerState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[DitherServerState, dict[DeviceId, Scalars]]:
        """Send the model, the density and the rate to every device."""
        scalars = {DENSITY_SCALAR: state.estimate.density, "rate": state.rate}
        return state, order_scalars(fleet, scalars=scalars)

    def check(self, reply: Packet) -> None:
        """Accept replies without a boost or with one from 1 to MAX_BOOST."""
        boost = reply.scalars.get("boost", 1.0)
        if not 1 <= boost <= MAX_BOOST:
            raise WireError(
                f"the reply of round {reply.round} has boost = {boost}; "
                f"it must be from 1 to {MAX_BOOST:g}"
            )

    def update(
        self, state: DitherServerState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[DitherServerState, Vector]:
        """Step along q̄ + mean upload, update q̄, and measure the noise."""
        squared_uploads: dict[DeviceId, float] = {}
        vectors = record_norms(uploads(replies), squared_uploads)
        mean = fleet.mean(vectors, replies)
        estimate = self._update_estimate(state, fleet, replies, mean, squared_uploads)
        damped = self._damped(state.rate)
        inner, step = damped.update_with_mean(state.inner, fleet, replies, mean)
        return DitherServerState(inner, state.rate, estimate), step

    def _update_estimate(
        self,
        state: DitherServerState,
        fleet: Fleet,
        replies: Mapping[DeviceId, Packet],
        mean: Vector,
        squared_uploads: Mapping[DeviceId, float],
    ) -> NoiseEstimate:
        """Return the noise estimate after the round; a round without uploads does not change it."""
        if not squared_uploads:
            return state.estimate
        requested = state.estimate.density
        densities = {
            device: _boosted_density(requested, replies[device].scalars.get("boost", 1.0))
            for device in squared_uploads
        }
        stats = UploadStats.measure(fleet, replies, squared_uploads, densities)
        signal = stats.signal(
            squared_step=squared_norm(state.inner.q_bar + mean),
            squared_mean_upload=squared_norm(mean),
            replied=fleet.effective_count(replies),
            devices=fleet.effective_count(fleet.devices),
        )
        limits = DensityLimits.for_fleet(fleet, self.density)
        return state.estimate.update(stats.noise_at_full_density, signal, limits)

    def memory(self, state: DitherServerState) -> Vector:
        """Return q̄."""
        return state.inner.q_bar

    def contribution(self, reply: Packet) -> Vector | None:
        """Return the upload, of which the device's memory takes a constant fraction."""
        return decode_or_none(reply)

    def forget(
        self,
        state: DitherServerState,
        fleet: Fleet,
        device: DeviceId,
        contributions: Iterable[Vector],
    ) -> DitherServerState:
        """Subtract the device's uploads from the average memory."""
        inner = self._damped(state.rate).forget(state.inner, fleet, device, contributions)
        return replace(state, inner=inner)

    def _damped(self, rate: float) -> DampedMemoryServer:
        return DampedMemoryServer(self.alpha, rate)


@method_factory(
    paper="this project, 2026; sampling after Wangni et al. 2018, memory after Mishchenko et al. "
    "2019",
    lost_reply="The server averages the uploads that arrived and keeps using the device's memory. "
    "The device rolls its memory back.",
)
def aquila_dither(
    alpha: Alpha = 0.1,
    density: AutoDensity = 0.0,
    work: WorkOption = "gradient",
) -> Method:
    """Unbiased sparse uploads that send a coordinate with probability proportional to its size."""
    return Method(
        "aquila_dither", AquilaDitherDevice(alpha, work), AquilaDitherServer(alpha, density)
    )
