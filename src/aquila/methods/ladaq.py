"""LAdaQ: AdaQuantFL's bits inside LAQ, the naive combination that AQUILA's paper argues against.

The width is b_k = ⌊b_0 √(f_0/f_k)⌋ bits. At 32 and more, devices send floats without quantization
error. Quantizer and trigger are LAQ's. Devices report their loss in every round, also when they
skip. It is the loss at the start of the round, as in AdaQuantFL, or with `loss=mean` the mean over
the local epochs.
"""

import math
from dataclasses import dataclass, replace

from aquila.core.method import Method, Oracle, Turn, theta_of
from aquila.core.packet import MAX_BITS, Packet
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.methods.adaquantfl import StartBits
from aquila.methods.laq import (
    DepthOption,
    ErrorsOption,
    LaqDevice,
    LaqState,
    MaxSilenceOption,
    XiOption,
)
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.memory import MemoryServer
from aquila.methods.parts.schedule import (
    LossOption,
    ReportedLoss,
    ScheduledServer,
    loss_to_report,
)


@dataclass(frozen=True)
class LadaqDevice:
    """A LAQ device that uses the width in the order."""

    laq: LaqDevice
    loss: ReportedLoss = "start"

    def init(self, like: Vector) -> LaqState:
        """Start as a LAQ device does."""
        return self.laq.init(like)

    def step(self, state: LaqState, order: Packet, oracle: Oracle, key: Key) -> Turn[LaqState]:
        """Answer as LAQ does at the width in the order, and report the loss."""
        bits = min(max(2, math.floor(order.scalar("size"))), MAX_BITS)
        turn = replace(self.laq, bits=bits).step(state, order, oracle, key)
        theta, local_loss = theta_of(order), turn.notes["loss"]
        loss = loss_to_report(self.loss, oracle, theta, self.laq.work, local_loss)
        reply = replace(turn.reply, scalars={"loss": loss})
        capped = float(bits == MAX_BITS and reply.vector is not None)
        return replace(turn, reply=reply, notes={**turn.notes, "capped": capped})

    def memory(self, state: LaqState) -> Vector:
        """Return q_m."""
        return self.laq.memory(state)


@method_factory(
    paper="the naive baseline of Zhao et al., AQUILA, 2023, arXiv 2308.00258: AdaQuantFL's width "
    "(arXiv 2102.04487) in LAQ (arXiv 1909.07588)",
    lost_reply="The device counts as absent from the round: it rolls its memory, error and clock "
    "back, and its loss is missing from the round's mean.",
)
def ladaq(
    alpha: Alpha = 0.1,
    b_0: StartBits = 6,
    xi: XiOption = 0.8,
    depth: DepthOption = 10,
    t_bar: MaxSilenceOption = 100,
    errors: ErrorsOption = 3.0,
    work: WorkOption = "gradient",
    loss: LossOption = "start",
) -> Method:
    """LAQ with bits that grow as the loss falls."""
    device = LadaqDevice(LaqDevice(alpha, b_0, xi, t_bar, work, errors), loss)
    server = MemoryServer(alpha, depth, average_drift=True)
    return Method("ladaq", device, ScheduledServer(server, b_0))
