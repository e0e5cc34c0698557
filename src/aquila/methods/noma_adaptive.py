"""Bits that fit the rate of a device in uplink NOMA (Sun, Ma and Hu 2020, arXiv 2003.01344).

Device m uploads b_m = ⌊r_m T / d_m⌋ bits per coordinate, from 2 to 32. So uploads of two bits or
more end within the time T, and the server can aggregate then. Set the option `access` to `noma`:
all devices then transmit in one band, and r_m is their rate after successive interference
cancellation (docs/links.md). With orthogonal access, r_m is the rate of a device in its own band.

T counts bits times coordinates, without headers, delays and the gain of the entropy coder. The
quantizer is QSGD's stochastic rounding with the maximum norm. It needs two bits, a sign and a zero;
32 bits are float32.
"""

from aquila.core.method import Method
from aquila.core.packet import MAX_BITS
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.link_bits import (
    MIN_BITS,
    UploadTime,
    WidthWithinTime,
    link_bits_method,
)

WIDTHS = tuple(range(MIN_BITS, MAX_BITS + 1))
"""Bits per coordinate that a device may use."""


@method_factory(
    paper="Sun, Ma and Hu, Adaptive Federated Learning With Gradient Compression in Uplink NOMA, "
    "IEEE Transactions on Vehicular Technology 2020, arXiv 2003.01344",
    lost_reply="The server averages the replies that arrived.",
    reconstruction="The abstract says that uploads adapt to the NOMA rates and shorten the "
    "aggregation; the rule for the bits, the default of T and the quantizer are ours.",
)
def noma_adaptive(
    alpha: Alpha = 0.1,
    upload_time: UploadTime = 0.0,
    work: WorkOption = "gradient",
) -> Method:
    """Gradients with as many bits as the rate of the round allows; needs a link model."""
    return link_bits_method("noma_adaptive", alpha, work, WidthWithinTime(upload_time, WIDTHS))
