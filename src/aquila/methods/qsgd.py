"""QSGD: unbiased stochastic quantization (Alistarh et al. 2017, arXiv 1610.02132).

`bits` counts the sign and the level: 6 bits are 31 levels. With a single 2-norm, s levels and d
coordinates, about s √d coordinates are sent at most. The rest rounds to zero. This is the draw of
`aquila_dither` with density s/√d, 1 % for 31 levels and ten million coordinates. The maximum norm,
or buckets of a few hundred coordinates, send more with less noise.

The default is one bucket. The authors use buckets, such as `bucket=512`. Always state the bucket
next to bytes or errors of QSGD. Here is a million coordinates at 6 bits, first from one normal
distribution, then with standard deviations that differ between buckets:

| buckets | bits per coordinate | relative error |
|---|---|---|
| one | 4.76, then 0.43 | 0.063, then 0.42 |
| of 512 coordinates | 5.44, then 5.44 | 0.043, then 0.041 |
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
BucketOption = Annotated[int, Bounds("coordinates that share one norm; 0: all", 0)]


@dataclass(frozen=True)
class QsgdDevice:
    """Sends its gradient, stochastically rounded."""

    alpha: float
    bits: int
    norm: Norm
    bucket: int
    work: Work

    def init(self, like: Vector) -> NoState:
        """Start without state."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with the rounded gradient."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        codes = stochastic_round(gradient, levels_for_bits(self.bits), key, self.norm, self.bucket)
        notes = {"loss": loss}
        if codes is not None:
            notes["error_ratio"] = error_ratio(gradient, codes.decode())
        return Turn(state, Packet(order.round, codes), notes)


@method_factory(
    paper="Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and "
    "Encoding, 2017, arXiv 1610.02132",
    lost_reply="The server averages the replies that arrived. The average stays unbiased if losses "
    "are independent of the data.",
)
def qsgd(
    alpha: Alpha = 0.1,
    bits: UploadBits = 6,
    norm: NormOption = "max",
    bucket: BucketOption = 0,
    work: WorkOption = "gradient",
) -> Method:
    """Gradients rounded stochastically to a fixed width, from every device in every round."""
    return Method("qsgd", QsgdDevice(alpha, bits, norm, bucket, work), MeanServer(alpha))
