"""AdaQuantFL: more precision as the loss falls (Jhunjhunwala et al. 2021, arXiv 2102.04487).

There are two versions. `adaquantfl_levels` is the original, in which the number of LEVELS grows:
s_k = ⌈s_0 √(F_0/F_k)⌉. `adaquantfl` is the version in AQUILA's paper, in which the BITS grow:
b_k = ⌊b_0 √(f_0/f_k)⌋. The bits soon exceed 32; a device then sends float32, and the records count
such uploads as `capped`. Both use QSGD's stochastic rounding.

The authors take the loss at the start of a round. So does `loss=start`: with `work=gradient` it is
the loss of the gradient, with `work=epochs` that of the first minibatch, which takes another
forward pass. With `loss=mean` it is the mean over the local epochs, which is lower. The records
show this mean in both cases.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import MAX_BITS, Codes, Dense, Packet
from aquila.core.parameter import Bounds
from aquila.core.quantize import Norm, bits_for_levels, levels_for_bits, stochastic_round
from aquila.core.random import Key
from aquila.core.vector import Vector, error_ratio
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.mean import MeanServer, NoState
from aquila.methods.parts.schedule import (
    LossOption,
    ReportedLoss,
    ScheduledServer,
    loss_to_report,
)
from aquila.methods.qsgd import BucketOption, NormOption

StartBits = Annotated[int, Bounds("bits per coordinate in the first round, b_0", 2, 31)]

PAPER = (
    "Jhunjhunwala et al., Adaptive Quantization of Model Updates for Communication-Efficient "
    "Federated Learning, 2021, arXiv 2102.04487"
)
LOST_REPLY = "The server averages the gradients and the losses that arrived."


@dataclass(frozen=True)
class AdaQuantDevice:
    """Rounds its gradient stochastically to the size in the order, and reports its loss."""

    alpha: float
    unit: Literal["bits", "levels"]
    norm: Norm
    bucket: int
    work: Work
    loss: ReportedLoss = "start"

    def init(self, like: Vector) -> NoState:
        """Start without state."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with the rounded gradient and the loss."""
        theta = theta_of(order)
        loss, gradient = local_work(oracle, theta, self.work, self.alpha)
        levels = self._levels(order.scalar("size"))
        capped = bits_for_levels(levels) >= MAX_BITS
        upload: Codes | Dense | None = (
            Dense(gradient)
            if capped
            else stochastic_round(gradient, levels, key, self.norm, self.bucket)
        )
        notes = {"loss": loss, "capped": float(capped)}
        if upload is not None:
            notes["error_ratio"] = error_ratio(gradient, upload.decode())
        reported = loss_to_report(self.loss, oracle, theta, self.work, loss)
        return Turn(state, Packet(order.round, upload, {"loss": reported}), notes)

    def _levels(self, size: float) -> int:
        if self.unit == "levels":
            return max(1, math.ceil(size))
        return levels_for_bits(min(max(2, math.floor(size)), MAX_BITS))


@method_factory(
    paper=PAPER,
    lost_reply=LOST_REPLY,
    reconstruction="The rule for bits is from AQUILA's paper; the original has one for levels.",
)
def adaquantfl(
    alpha: Alpha = 0.1,
    b_0: StartBits = 6,
    norm: NormOption = "max",
    bucket: BucketOption = 0,
    work: WorkOption = "gradient",
    loss: LossOption = "start",
) -> Method:
    """Stochastically rounded gradients whose bits grow as the loss falls (AQUILA's version)."""
    device = AdaQuantDevice(alpha, "bits", norm, bucket, work, loss)
    return Method("adaquantfl", device, ScheduledServer(MeanServer(alpha), b_0))


@method_factory(paper=PAPER, lost_reply=LOST_REPLY)
def adaquantfl_levels(
    alpha: Alpha = 0.1,
    s_0: Annotated[int, Bounds("levels in the first round, s_0", 1)] = 2,
    norm: NormOption = "max",
    bucket: BucketOption = 0,
    work: WorkOption = "gradient",
    loss: LossOption = "start",
) -> Method:
    """Stochastically rounded gradients whose levels grow as the loss falls (the original)."""
    device = AdaQuantDevice(alpha, "levels", norm, bucket, work, loss)
    return Method("adaquantfl_levels", device, ScheduledServer(MeanServer(alpha), s_0))
