"""DIANA: unbiased differences to a damped memory (Mishchenko et al. 2019, arXiv 1901.09269).

A device dithers the difference of its gradient to its memory, u = Q(g - h_m), and moves the memory
by a part of it, h_m <- h_m + η u; the server steps along h̄ + mean(u) and moves h̄ alike
(Algorithm 1). As the differences vanish with full gradients, so does the variance of dithering.
Here the memory is called q, as everywhere.
"""

from dataclasses import dataclass
from typing import Annotated

from aquila.core.method import Method
from aquila.core.packet import Codes
from aquila.core.parameter import Bounds
from aquila.core.quantize import Norm, levels_for_bits, stochastic_round
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.methods.parts.damped import DampedMemoryDevice, DampedMemoryServer
from aquila.methods.parts.factory import Alpha, UploadBits, WorkOption, method_factory
from aquila.methods.qsgd import BucketOption, NormOption


@dataclass(frozen=True)
class StochasticRounding:
    """The quantizer of QSGD (Algorithm 1, lines 5 to 7, has it act on g - h_m)."""

    bits: int
    norm: Norm
    bucket: int

    def __call__(self, v: Vector, key: Key) -> Codes | None:
        """Return dithered codes."""
        return stochastic_round(v, levels_for_bits(self.bits), key, self.norm, self.bucket)


@method_factory(
    paper="Mishchenko et al., Distributed Learning with Compressed Gradient Differences, 2019, "
    "arXiv 1901.09269",
    lost_reply="the mean difference is taken over the replies that arrived; a device whose reply "
    "was lost takes the change of its memory back",
)
def diana(
    alpha: Alpha = 0.1,
    eta: Annotated[float, Bounds("share of a difference that moves the memory", 0, 1)] = 0.1,
    bits: UploadBits = 3,
    norm: NormOption = "max",
    bucket: BucketOption = 0,
    work: WorkOption = "gradient",
) -> Method:
    """Dithered differences to a memory that follows the gradient slowly."""
    device = DampedMemoryDevice(alpha, eta, StochasticRounding(bits, norm, bucket), work)
    return Method("diana", device, DampedMemoryServer(alpha, eta))
