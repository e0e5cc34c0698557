"""Bits that maximise the signal-to-noise ratio of uploads (Lin, Liu and Chen, ICCC 2021).

Quantizing with b bits on a grid from -R to R adds noise of the power R² / (3 (2^b - 1)²). The
channel adds noise of the power P / SNR_m, where P is the mean square of the upload. The server
maximises the weighted sum of the logarithms of the resulting ratios,

    Σ_m w_m log(1 / (c_m² / (3 (2^b_m - 1)²) + 1 / SNR_m)),    c_m = R_m / √P_m,

subject to Σ_m b_m d_m <= budget Σ_m d_m. It starts with b_min bits for every device. Then it gives
one bit after another to the device that gains most per bit sent. Bits on a bad channel gain little,
because the noise of the channel remains. So devices with a bad channel get fewer bits.

A device reports c_m with its upload, and the server uses it in the next round. Before the first
upload c_m is 3. The link model adds no noise to uploads: a frame arrives whole, or it is lost. The
quantizer is AQUILA's mid-rise grid.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Annotated

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method, Oracle, Scalars, Turn, decode_upload, uploads
from aquila.core.packet import Packet, WireError
from aquila.core.parameter import Bounds
from aquila.core.random import Key
from aquila.core.vector import Vector, max_norm, squared_norm
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.link_bits import LinkBitsDevice, bit_orders, links_of
from aquila.methods.parts.mean import NoState

FIRST_CREST = 3.0
"""Range ÷ root mean square of a device that has not reported it yet."""


@dataclass(frozen=True)
class ChannelDevice:
    """Sends its gradient with the bits of the order, and the crest factor of the upload."""

    inner: LinkBitsDevice

    def init(self, like: Vector) -> NoState:
        """Start without state."""
        return self.inner.init(like)

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with the quantized gradient and its crest factor."""
        turn = self.inner.step(state, order, oracle, key)
        if turn.reply.vector is None:
            return turn
        sent = decode_upload(turn.reply)
        crest = max_norm(sent) / math.sqrt(squared_norm(sent) / sent.numel())
        return replace(turn, reply=replace(turn.reply, scalars={"crest": crest}))


@dataclass(frozen=True, eq=False)
class ChannelState:
    """The crest factor c_m that each device reported last."""

    crests: tuple[float, ...]


@dataclass(frozen=True)
class ChannelServer:
    """Distributes a budget of bits, and steps along the average of the replies."""

    alpha: float
    budget: float
    b_min: int
    b_max: int

    @property
    def needs_links(self) -> bool:
        """True: the bits depend on the signal-to-noise ratios."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> ChannelState:
        """Start with the same crest factor for all devices."""
        return ChannelState((FIRST_CREST,) * len(fleet.devices))

    def orders(
        self, state: ChannelState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[ChannelState, dict[DeviceId, Scalars]]:
        """Send the model and its bits to every device of the round."""
        return state, bit_orders(self.bits(state, fleet))

    def check(self, reply: Packet) -> None:
        """Accept skips, and uploads that report a crest factor."""
        if reply.vector is not None and not 0 < reply.scalar("crest") < math.inf:
            raise WireError(f"the crest factor must be above 0, not {reply.scalar('crest')}")

    def update(
        self, state: ChannelState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[ChannelState, Vector]:
        """Step along the average, and remember the crest factors."""
        step = self.alpha * fleet.mean(uploads(replies), replies)
        crests = list(state.crests)
        for device, reply in replies.items():
            if reply.vector is not None:
                crests[device] = reply.scalar("crest")
        return ChannelState(tuple(crests)), step

    def bits(self, state: ChannelState, fleet: Fleet) -> dict[DeviceId, int]:
        """Return the bits of each device of the round."""
        links = links_of(fleet)
        sizes = {device: fleet.dimension_of(device) for device in links}

        def gain(device: DeviceId, bits: int) -> float:
            """Gain of one more bit, per bit sent."""
            crest, channel = state.crests[device], 1 / links[device].snr
            noise = [crest**2 / 3 / (2**b - 1) ** 2 + channel for b in (bits, bits + 1)]
            return fleet.weights[device] * math.log(noise[0] / noise[1]) / sizes[device]

        chosen = dict.fromkeys(links, self.b_min)
        left = (self.budget - self.b_min) * sum(sizes.values())
        heap = [(-gain(device, self.b_min), device) for device in links]
        heapify(heap)
        while heap:
            _, device = heappop(heap)
            if sizes[device] > left or chosen[device] == self.b_max:
                continue
            chosen[device] += 1
            left -= sizes[device]
            heappush(heap, (-gain(device, chosen[device]), device))
        return chosen


@method_factory(
    paper="Lin, Liu and Chen, Channel-adaptive quantization for wireless federated learning, "
    "ICCC 2021",
    lost_reply="The server averages the replies that arrived. It keeps the last crest factor of "
    "the other devices.",
    reconstruction="AQUILA's paper names the objective, the ratio of the signal to channel noise "
    "and quantization noise, and the limit on the bits. The formula and the greedy rule are ours.",
)
def channel_adaptive(
    alpha: Alpha = 0.1,
    budget: Annotated[float, Bounds("mean bits per coordinate over all devices", 1, 31)] = 6.0,
    b_min: Annotated[int, Bounds("smallest bits per coordinate", 1, 31)] = 2,
    b_max: Annotated[int, Bounds("largest bits per coordinate", 1, 31)] = 16,
    work: WorkOption = "gradient",
) -> Method:
    """A budget of bits, distributed so that uploads have little noise; needs a link model."""
    if not b_min <= budget <= b_max:
        raise ValueError(
            f"channel_adaptive: budget must be from b_min to b_max, {b_min} to {b_max}, "
            f"not {budget:g}"
        )
    device = ChannelDevice(LinkBitsDevice(alpha, work, "nearest"))
    return Method("channel_adaptive", device, ChannelServer(alpha, budget, b_min, b_max))
