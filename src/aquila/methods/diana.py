"""DIANA: unbiased differences to a damped memory (Mishchenko et al. 2019, arXiv 1901.09269).

A device rounds the difference between its gradient and its memory stochastically, u = Q(g - h_m),
and updates the memory by h_m <- h_m + η u. The server steps along h̄ + mean(u) and updates h̄ in
the same way (Algorithm 1). With full gradients the differences vanish, and so does the variance of
the rounding. In the code the memory is called q, as in all methods.
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
    """The quantizer of QSGD; Algorithm 1, lines 5 to 7, applies it to g - h_m."""

    bits: int
    norm: Norm
    bucket: int

    def __call__(self, v: Vector, key: Key) -> Codes | None:
        """Return the codes of the rounded vector."""
        return stochastic_round(v, levels_for_bits(self.bits), key, self.norm, self.bucket)


@method_factory(
    paper="Mishchenko et al., Distributed Learning with Compressed Gradient Differences, 2019, "
    "arXiv 1901.09269",
    lost_reply="The server averages the differences that arrived and keeps using the device's "
    "memory. The device rolls its memory back.",
)
def diana(
    alpha: Alpha = 0.1,
    eta: Annotated[float, Bounds("rate η at which the memory follows the differences", 0, 1)] = 0.1,
    bits: UploadBits = 3,
    norm: NormOption = "max",
    bucket: BucketOption = 0,
    work: WorkOption = "gradient",
) -> Method:
    """Stochastically rounded differences to a memory that follows the gradient slowly."""
    device = DampedMemoryDevice(alpha, eta, StochasticRounding(bits, norm, bucket), work)
    return Method("diana", device, DampedMemoryServer(alpha, eta))
