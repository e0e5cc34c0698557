"""LAdaQ: AdaQuantFL's width inside LAQ, the naive combination AQUILA's paper argues against.

The width is b_k = ⌊b_0 √(f_0/f_k)⌋ bits, capped at 32 (then floats are sent, without error);
quantizer and trigger are LAQ's. Devices report their loss every round, in skips too.
"""

import math
from dataclasses import dataclass, replace

from aquila.core.method import Method, Oracle, Turn
from aquila.core.packet import MAX_BITS, Packet
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.methods.adaquantfl import StartBits
from aquila.methods.laq import DepthOption, LaqDevice, LaqState, MaxSilenceOption, XiOption
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.memory import MemoryServer
from aquila.methods.parts.schedule import ScheduledServer


@dataclass(frozen=True)
class LadaqDevice:
    """A LAQ device whose width comes with the order."""

    laq: LaqDevice

    def init(self, like: Vector) -> LaqState:
        """Start as LAQ does."""
        return self.laq.init(like)

    def step(self, state: LaqState, order: Packet, oracle: Oracle, key: Key) -> Turn[LaqState]:
        """Answer as LAQ does at the width of the order, and report the loss."""
        bits = min(max(2, math.floor(order.scalar("size"))), MAX_BITS)
        turn = replace(self.laq, bits=bits).step(state, order, oracle, key)
        reply = replace(turn.reply, scalars={"loss": turn.notes["loss"]})
        capped = float(bits == MAX_BITS and reply.vector is not None)
        return replace(turn, reply=reply, notes={**turn.notes, "capped": capped})


@method_factory(
    paper="the naive baseline of Zhao et al., AQUILA, 2023, arXiv 2308.00258: AdaQuantFL's width "
    "(arXiv 2102.04487) in LAQ (arXiv 1909.07588)",
    lost_reply="counts as a round in which the device took no part: memory, error and clock go "
    "back to what they were, and its loss is missing from the round's mean",
)
def ladaq(
    alpha: Alpha = 0.1,
    b_0: StartBits = 6,
    xi: XiOption = 0.8,
    depth: DepthOption = 10,
    t_bar: MaxSilenceOption = 100,
    work: WorkOption = "gradient",
) -> Method:
    """LAQ with bits that grow as the loss falls."""
    device = LadaqDevice(LaqDevice(alpha, b_0, xi, t_bar, work))
    server = MemoryServer(alpha, depth, average_drift=True)
    return Method("ladaq", device, ScheduledServer(server, b_0))
