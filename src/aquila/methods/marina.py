"""MARINA: compressed gradient differences (Gorbunov et al. 2021, arXiv 2102.07845).

In most rounds devices send the dithered change of their gradient since the last model; in a few,
by a coin that all share, they send the gradient itself. Both points are evaluated on the same
minibatches (VR-MARINA), so a device keeps one old model. Local epochs stand for gradients as in
AQUILA's tables; the paper itself knows gradients only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import (
    Method,
    Oracle,
    Turn,
    Work,
    local_work,
    model_orders,
    theta_of,
    uploads,
)
from aquila.core.packet import NEVER, Dense, Packet
from aquila.core.parameter import Bounds
from aquila.core.quantize import Norm, levels_for_bits, stochastic_round
from aquila.core.random import Key
from aquila.core.vector import Vector, error_ratio
from aquila.methods.parts.factory import Alpha, UploadBits, WorkOption, method_factory
from aquila.methods.qsgd import BucketOption, NormOption


@dataclass(frozen=True, eq=False)
class LastModel:
    """State of a device: the last model it saw, and in which round."""

    theta: Vector
    round: int


@dataclass(frozen=True)
class MarinaDevice:
    """Sends its gradient, or how it changed."""

    alpha: float
    bits: int
    norm: Norm
    bucket: int
    work: Work

    def init(self, like: Vector) -> LastModel:
        """Start without a model."""
        return LastModel(torch.zeros_like(like), NEVER)

    def step(self, state: LastModel, order: Packet, oracle: Oracle, key: Key) -> Turn[LastModel]:
        """Answer with ∇f_m(θᵏ), or with Q(∇f_m(θᵏ) - ∇f_m(θᵏ⁻¹)) (MARINA, Algorithm 1, line 8)."""
        theta = theta_of(order)
        full, stale = bool(order.scalar("full")), state.round != order.round - 1
        before = None if full or stale else self._gradient(oracle, state.theta)[1]
        loss, gradient = self._gradient(oracle, theta)
        seen = LastModel(theta, order.round)
        notes = {"loss": loss}
        if full:
            reply = Packet(order.round, Dense(gradient))
        elif before is None:
            reply = Packet(order.round, None, {"stale": 1.0})
        else:
            change = gradient - before
            codes = stochastic_round(
                change, levels_for_bits(self.bits), key, self.norm, self.bucket
            )
            if codes is not None:
                notes["error_ratio"] = error_ratio(change, codes.decode())
            reply = Packet(order.round, codes)
        return Turn(seen, reply, notes, fallback=seen)

    def _gradient(self, oracle: Oracle, theta: Vector) -> tuple[float, Vector]:
        return local_work(oracle, theta, self.work, self.alpha)


@dataclass(frozen=True, eq=False)
class MarinaState:
    """Model, estimate of the gradient, whether this round is a full one or the next must be."""

    theta: Vector
    g: Vector
    full: bool
    full_next: bool = True


@dataclass(frozen=True)
class MarinaServer:
    """theta <- theta - alpha g, g being moved by changes or set anew."""

    alpha: float
    p: float

    @property
    def remembers(self) -> bool:
        """No: a change builds on two models that the device has seen, not on its replies."""
        return False

    def init(self, theta: Vector, fleet: Fleet) -> MarinaState:
        """Start from the given model; the first round is a full one."""
        return MarinaState(theta, torch.zeros_like(theta, dtype=torch.float64), True)

    def model(self, state: MarinaState) -> Vector:
        """Return the current model."""
        return state.theta

    def orders(
        self, state: MarinaState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[MarinaState, dict[DeviceId, Packet]]:
        """Toss the coin and send it with the model."""
        full = state.full_next or key.bernoulli(self.p)
        orders = model_orders(fleet, state.theta, round_number, scalars={"full": float(full)})
        return replace(state, full=full), orders

    def check(self, reply: Packet) -> None:
        """Take any vector; a reply without one, if not stale, stands for no change."""

    def update(
        self, state: MarinaState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> MarinaState:
        """Set or move the estimate by the mean of the replies and step along it.

        A change that no device tells of would be missing from it until the next full round.
        """
        fresh = {d: reply for d, reply in replies.items() if "stale" not in reply.scalars}
        g = state.g
        if fresh:
            mean = fleet.mean(uploads(fresh), weights=dict.fromkeys(fresh, 1.0))
            g = torch.where(fleet.coordinate_mask(fresh), mean, g) if state.full else g + mean
        theta = (state.theta - self.alpha * g).to(state.theta.dtype)
        return MarinaState(theta, g, state.full, full_next=not fresh)

    def forget(
        self, state: MarinaState, fleet: Fleet, device: DeviceId, replies: Iterable[Packet]
    ) -> MarinaState:
        """Return the state: a device that starts anew is stale until the next model."""
        return state


@method_factory(
    paper="Gorbunov et al., MARINA: Faster Non-Convex Distributed Learning with Compression, 2021, "
    "arXiv 2102.07845",
    lost_reply="the mean change is taken over the replies that arrived, and after a round without "
    "any the next one is full; a device that missed an order waits for one round to have two "
    "models in a row again, so p must grow as participation falls",
)
def marina(
    alpha: Alpha = 0.1,
    bits: UploadBits = 6,
    p: Annotated[float, Bounds("probability of a round with full gradients", 0, 1)] = 0.01,
    norm: NormOption = "max",
    bucket: BucketOption = 0,
    work: WorkOption = "gradient",
) -> Method:
    """Dithered changes of the gradient, with rare rounds of full gradients."""
    device = MarinaDevice(alpha, bits, norm, bucket, work)
    return Method("marina", device, MarinaServer(alpha, p))
