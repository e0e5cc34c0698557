"""MARINA: compressed gradient differences (Gorbunov et al. 2021, arXiv 2102.07845).

In most rounds a device sends the stochastically rounded change of its gradient since the last
model. With a small probability p, the same for all devices, a round is full: devices send whole
gradients. A device keeps the last model and evaluates both models on the same minibatches
(VR-MARINA). The paper covers gradients only; local epochs replace them as in AQUILA's tables.

The default p matches the bytes of AQUILA's tables. `p_rule=authors` is the choice of MARINA's
authors, p = 1 / (1 + ω). Here ω = min(n/s², √n/s) bounds the variance of the rounding, with s
levels and n coordinates per bucket. It is 1.0 at 6 bits and n = 1,000, so half of the rounds are
full, and 107 for 11 million coordinates in one bucket, so one of 108 rounds is.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import (
    Method,
    Oracle,
    Scalars,
    Turn,
    Work,
    local_work,
    order_scalars,
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
    """State of a device: the last model it received, and the round of that model."""

    theta: Vector
    round: int


@dataclass(frozen=True)
class MarinaDevice:
    """Sends its gradient, or the change of its gradient."""

    alpha: float
    bits: int
    norm: Norm
    bucket: int
    work: Work

    @property
    def needs_other_models(self) -> bool:
        """True: a change takes the gradients at two models."""
        return True

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
    """Gradient estimate g, and whether this round is full and the next must be."""

    g: Vector
    full: bool
    full_next: bool = True


@dataclass(frozen=True)
class FullRounds:
    """Probability that a round is full: given, or computed from the quantizer if it is None."""

    given: float | None
    levels: int
    bucket: int

    def probability(self, dimension: int) -> float:
        """Return p for a model of this dimension."""
        if self.given is not None:
            return self.given
        n, s = min(self.bucket, dimension) or dimension, self.levels
        return 1 / (1 + min(n / s**2, math.sqrt(n) / s))


@dataclass(frozen=True)
class MarinaServer:
    """Step: alpha g. Full rounds set the estimate g, the others add changes to it."""

    alpha: float
    p: FullRounds

    def init(self, theta: Vector, fleet: Fleet) -> MarinaState:
        """Start without an estimate; the first round is full."""
        return MarinaState(torch.zeros_like(theta, dtype=torch.float64), True)

    def orders(
        self, state: MarinaState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[MarinaState, dict[DeviceId, Scalars]]:
        """Draw whether the round is full, and send that with the model."""
        full = state.full_next or key.bernoulli(self.p.probability(fleet.dimension))
        return replace(state, full=full), order_scalars(fleet, scalars={"full": float(full)})

    def update(
        self, state: MarinaState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[MarinaState, Vector]:
        """Set or change the estimate by the mean of the replies and step along it.

        If no device reports its change, the estimate misses a step, so the next round is full.
        """
        usable = {d: reply for d, reply in replies.items() if "stale" not in reply.scalars}
        g = state.g
        if usable:
            mean = fleet.mean(uploads(usable), usable)
            g = torch.where(fleet.coordinate_mask(usable), mean, g) if state.full else g + mean
        return MarinaState(g, state.full, full_next=not usable), self.alpha * g


@method_factory(
    paper="Gorbunov et al., MARINA: Faster Non-Convex Distributed Learning with Compression, 2021, "
    "arXiv 2102.07845",
    lost_reply="The server averages the changes that arrived; after a round without any, the next "
    "round is full. A device that missed an order sends no change in the next round, because it "
    "needs two consecutive models. So lower participation needs a larger p.",
)
def marina(
    alpha: Alpha = 0.1,
    bits: UploadBits = 6,
    p: Annotated[float, Bounds("probability of a round with whole gradients", 0, 1)] = 0.01,
    p_rule: Annotated[
        Literal["given", "authors"], "where p is from: `p`, or 1 / (1 + ω)"
    ] = "given",
    norm: NormOption = "max",
    bucket: BucketOption = 0,
    work: WorkOption = "gradient",
) -> Method:
    """Stochastically rounded changes of the gradient, with occasional rounds of whole gradients."""
    device = MarinaDevice(alpha, bits, norm, bucket, work)
    full_rounds = FullRounds(p if p_rule == "given" else None, levels_for_bits(bits), bucket)
    return Method("marina", device, MarinaServer(alpha, full_rounds))
