"""QSGD: unbiased stochastic quantization (Alistarh et al. 2017, arXiv 1610.02132).

`bits` counts a sign and the level: 6 bits are 31 levels, and an upload is exactly 6 d bits of
payload. With one 2-norm for millions of coordinates nearly all of them round to zero, and what is
left is noise; the maximum norm, or buckets of a few hundred coordinates, keep it usable.
"""

from dataclasses import dataclass
from typing import Annotated

from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Packet
from aquila.core.parameter import Bounds
from aquila.core.quantize import Norm, levels_for_bits, stochastic_round
from aquila.core.random import Key
from aquila.core.vector import Vector, error_ratio
from aquila.methods.parts.factory import Alpha, UploadBits, WorkOption, method_factory
from aquila.methods.parts.mean import MeanServer, NoState

NormOption = Annotated[Norm, "norm that scales the grid"]
BucketOption = Annotated[int, Bounds("coordinates that share one norm; 0 for all", 0)]


@dataclass(frozen=True)
class QsgdDevice:
    """Sends its gradient, dithered."""

    alpha: float
    bits: int
    norm: Norm
    bucket: int
    work: Work

    def init(self, like: Vector) -> NoState:
        """Remember nothing."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with the dithered gradient."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        codes = stochastic_round(gradient, levels_for_bits(self.bits), key, self.norm, self.bucket)
        notes = {"loss": loss}
        if codes is not None:
            notes["error_ratio"] = error_ratio(gradient, codes.decode())
        return Turn(state, Packet(order.round, codes), notes)


@method_factory(
    paper="Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and "
    "Encoding, 2017, arXiv 1610.02132",
    lost_reply="the round's average is taken over the replies that arrived, and stays unbiased if "
    "losses are independent of the data",
)
def qsgd(
    alpha: Alpha = 0.1,
    bits: UploadBits = 6,
    norm: NormOption = "max",
    bucket: BucketOption = 0,
    work: WorkOption = "gradient",
) -> Method:
    """Gradients dithered to a fixed width, from every device every round."""
    return Method("qsgd", QsgdDevice(alpha, bits, norm, bucket, work), MeanServer(alpha))
