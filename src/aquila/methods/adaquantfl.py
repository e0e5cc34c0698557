"""AdaQuantFL: precision that rises as the loss falls (Jhunjhunwala et al. 2021, arXiv 2102.04487).

Two readings, named apart. The original lets the number of LEVELS grow, s_k = ⌈s_0 √(F_0/F_k)⌉.
AQUILA's paper lets the BITS grow, b_k = ⌊b_0 √(f_0/f_k)⌋, which soon asks for more than 32; a
device then sends float32, and the records count such uploads as `capped`. Both dither as QSGD does.
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
from aquila.methods.parts.schedule import ScheduledServer
from aquila.methods.qsgd import BucketOption, NormOption

StartBits = Annotated[int, Bounds("bits a coordinate in the first round, b_0", 2, 31)]

PAPER = (
    "Jhunjhunwala et al., Adaptive Quantization of Model Updates for Communication-Efficient "
    "Federated Learning, 2021, arXiv 2102.04487"
)
LOST_REPLY = "average and loss of the round are taken over the replies that arrived"


@dataclass(frozen=True)
class AdaQuantDevice:
    """Dithers its gradient to the size the server asks for, and reports its loss."""

    alpha: float
    unit: Literal["bits", "levels"]
    norm: Norm
    bucket: int
    work: Work

    def init(self, like: Vector) -> NoState:
        """Remember nothing."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with the dithered gradient and the loss."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
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
        return Turn(state, Packet(order.round, upload, {"loss": loss}), notes)

    def _levels(self, size: float) -> int:
        if self.unit == "levels":
            return max(1, math.ceil(size))
        return levels_for_bits(min(max(2, math.floor(size)), MAX_BITS))


@method_factory(
    paper=PAPER,
    lost_reply=LOST_REPLY,
    reconstruction="the growth of the bits is AQUILA's wording of the rule, not the original's",
)
def adaquantfl(
    alpha: Alpha = 0.1,
    b_0: StartBits = 6,
    norm: NormOption = "max",
    bucket: BucketOption = 0,
    work: WorkOption = "gradient",
) -> Method:
    """Dithered gradients whose bits grow as the loss falls, as AQUILA's paper reads it."""
    device = AdaQuantDevice(alpha, "bits", norm, bucket, work)
    return Method("adaquantfl", device, ScheduledServer(MeanServer(alpha), b_0))


@method_factory(paper=PAPER, lost_reply=LOST_REPLY)
def adaquantfl_levels(
    alpha: Alpha = 0.1,
    s_0: Annotated[int, Bounds("levels in the first round, s_0", 1)] = 2,
    norm: NormOption = "max",
    bucket: BucketOption = 0,
    work: WorkOption = "gradient",
) -> Method:
    """Dithered gradients whose levels grow as the loss falls, as the original has it."""
    device = AdaQuantDevice(alpha, "levels", norm, bucket, work)
    return Method("adaquantfl_levels", device, ScheduledServer(MeanServer(alpha), s_0))
