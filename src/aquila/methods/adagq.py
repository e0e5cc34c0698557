"""AdaGQ: levels that shorten the simulated training time (Liu, He, Cao 2023, arXiv 2212.08272).

Devices send their gradient with QSGD's stochastic rounding to s_i levels. They also measure their
loss before a step, after a step with s_i levels, and after one with s_i' = ⌊s_i/2⌋ levels.

- Over time: R is the mean decrease of the loss per second of the round, and R' that with half of
  the levels, in the time that the round would then take. If R' > R, the mean s of the levels is
  halved; if R' < R, it is doubled. Then the server adds lambda_g (log2 ||g_k|| - log2 ||g_{k-1}||),
  where g_k is the mean gradient.
- Per device: with b_i = log2(s_i + 1), the server chooses the levels so that compute time plus
  b_i d_i / r_i is the same for all devices, and their mean is s. A device with a bad link or a slow
  processor sends fewer bits.

Times are those of the link model with a payload of bits times coordinates, without headers. The
three losses cost three evaluations of the round's minibatch per device. The paper starts at 255
levels, 8 bits.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import (
    Method,
    Oracle,
    Scalars,
    Turn,
    Work,
    local_work,
    loss_at,
    scheduled_alpha,
    theta_of,
    uploads,
)
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.parameter import Bounds
from aquila.core.quantize import Norm, stochastic_round
from aquila.core.random import Key
from aquila.core.vector import Vector, error_ratio, squared_norm
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.link_bits import links_of, upload_rates
from aquila.methods.parts.mean import NoState
from aquila.methods.qsgd import NormOption

LOSSES = ("before", "after", "after_half")
"""Scalars of a reply: the loss before a step, after it, and after one with half of the levels."""
MAX_LEVEL_BITS = 15
"""Largest bits of a level. With the sign, codes have at most 16 bits."""
MIN_LEVELS, MAX_LEVELS = 2.0, 2.0**MAX_LEVEL_BITS - 1
BISECTIONS = 60
BITS_PER_FLOAT = 32


@dataclass(frozen=True)
class AdagqDevice:
    """Rounds its gradient to the levels of the order, and measures the effect on its loss."""

    alpha: float
    norm: Norm
    work: Work

    @property
    def needs_other_models(self) -> bool:
        """True: two of the losses are those after a step."""
        return True

    def init(self, like: Vector) -> NoState:
        """Start without state."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with the rounded gradient and the three losses."""
        theta, levels = theta_of(order), int(order.scalar("levels"))
        loss, gradient = local_work(oracle, theta, self.work, self.alpha)
        upload = stochastic_round(gradient, levels, key, self.norm)
        half = stochastic_round(gradient, max(1, levels // 2), key.child(1), self.norm)
        alpha = scheduled_alpha(order, self.alpha)
        measured = [
            loss_at(oracle, theta if codes is None else theta - alpha * codes.decode())
            for codes in (None, upload, half)
        ]
        notes = {"loss": loss}
        if upload is not None:
            notes["error_ratio"] = error_ratio(gradient, upload.decode())
        scalars = dict(zip(LOSSES, measured, strict=True))
        return Turn(state, Packet(order.round, upload, scalars), notes)


@dataclass(frozen=True, eq=False)
class AdagqState:
    """Mean levels of the next round, and the norm of the last mean gradient (0: none yet)."""

    levels: float
    norm: float = 0.0


@dataclass(frozen=True)
class AdagqServer:
    """Steps along the average of the replies, and chooses the levels of every device."""

    alpha: float
    s_0: int
    lambda_g: float

    @property
    def needs_links(self) -> bool:
        """True: the levels depend on the times of the devices."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> AdagqState:
        """Start with s_0 levels."""
        return AdagqState(float(self.s_0))

    def orders(
        self, state: AdagqState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[AdagqState, dict[DeviceId, Scalars]]:
        """Send the model and its levels to every device of the round."""
        levels = levels_by_time(fleet, state.levels)
        shared = {count: {"levels": float(count)} for count in set(levels.values())}
        return state, {device: shared[count] for device, count in levels.items()}

    def check(self, reply: Packet) -> None:
        """Accept replies that report three finite losses."""
        if not all(math.isfinite(reply.scalar(name)) for name in LOSSES):
            raise WireError(f"the losses of round {reply.round} must be finite")

    def update(
        self, state: AdagqState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[AdagqState, Vector]:
        """Step along the average, and adapt the mean levels."""
        mean = fleet.mean(uploads(replies), replies)
        norm = math.sqrt(squared_norm(mean))
        if not norm:
            return state, self.alpha * mean
        levels = state.levels * level_factor(fleet, replies)
        if state.norm:
            levels += self.lambda_g * math.log2(norm / state.norm)
        return AdagqState(min(max(levels, MIN_LEVELS), MAX_LEVELS), norm), self.alpha * mean


def level_factor(fleet: Fleet, replies: Mapping[DeviceId, Packet]) -> float:
    """Return 1/2 if half of the levels decrease the loss faster, 2 if more slowly, 1 if as fast."""
    before, after, after_half = (
        fleet.mean_number({d: reply.scalar(name) for d, reply in replies.items()})
        for name in LOSSES
    )
    speed = (before - after) / round_seconds(fleet, replies, halved=False)
    speed_of_half = (before - after_half) / round_seconds(fleet, replies, halved=True)
    return 1.0 if speed_of_half == speed else 0.5 if speed_of_half > speed else 2.0


def round_seconds(fleet: Fleet, replies: Mapping[DeviceId, Packet], halved: bool) -> float:
    """Return the time until the last reply, with the levels of the replies or half of them."""
    links = links_of(fleet)
    times = []
    for device, reply in replies.items():
        bits = 0 if reply.vector is None or isinstance(reply.vector, Dense) else reply.vector.bits
        if halved and bits > 2:  # two bits are one level, the minimum
            bits -= 1
        size = fleet.dimension_of(device)
        down, up = (math.ceil(count * size / 8) for count in (BITS_PER_FLOAT, bits))
        times.append(links[device].seconds(down, up))
    return max(times)


def levels_by_time(fleet: Fleet, mean_levels: float) -> dict[DeviceId, int]:
    """Return levels with this mean, under which all devices compute and upload equally long."""
    links, rates = links_of(fleet), upload_rates(fleet)
    per_bit = {d: fleet.dimension_of(d) / r if r > 0 else math.inf for d, r in rates.items()}
    work = {device: state.link.compute_time for device, state in links.items()}

    def levels_within(seconds: float) -> dict[DeviceId, float]:
        bits = {d: (seconds - work[d]) / per_bit[d] for d in links}
        return {d: 2.0 ** min(max(b, 1), MAX_LEVEL_BITS) - 1 for d, b in bits.items()}

    reachable = [d for d in links if per_bit[d] < math.inf]
    low, high = 0.0, max((work[d] + MAX_LEVEL_BITS * per_bit[d] for d in reachable), default=0.0)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        enough = sum(levels_within(middle).values()) >= mean_levels * len(links)
        low, high = (low, middle) if enough else (middle, high)
    return {device: round(levels) for device, levels in levels_within(high).items()}


@method_factory(
    paper="Liu, He and Cao, Communication-Efficient Federated Learning for Heterogeneous Edge "
    "Devices Based on Adaptive Gradient Quantization, INFOCOM 2023, arXiv 2212.08272",
    lost_reply="The server averages the gradients and the losses that arrived.",
    reconstruction="The paper measures the losses after a step along the mean gradient; here a "
    "device steps along its own, because the server does not send the mean. The levels use the "
    "links of the coming round, where the paper uses the times measured in the last one.",
)
def adagq(
    alpha: Alpha = 0.1,
    s_0: Annotated[int, Bounds("mean levels in the first round", MIN_LEVELS, MAX_LEVELS)] = 255,
    lambda_g: Annotated[float, Bounds("weight of the change of the gradient's norm", 0, 1e6)] = 1.0,
    norm: NormOption = "max",
    work: WorkOption = "gradient",
) -> Method:
    """Rounded gradients with levels that shorten the simulated time; needs a link model."""
    return Method("adagq", AdagqDevice(alpha, norm, work), AdagqServer(alpha, s_0, lambda_g))
