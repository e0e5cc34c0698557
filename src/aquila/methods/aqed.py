"""The quantization of AQeD: bit widths that fit the bandwidth (Liu et al. 2022).

Device m uploads with the largest width b_m of 2, 4, 8 and 16 bits per coordinate that satisfies
b_m d_m <= r_m T, with its rate r_m, its d_m coordinates and the time T. A device for which even two
bits are too many sends two. The clusters of the paper, devices with the same model, are the widths
of the fleet here (`widths`), so d_m differs between clusters and b_m within them.

AQeD also trains all clusters against the ensemble of their predictions on public data. This part
is not here, because the protocol has no public data. What remains is its choice of bit widths.

The quantizer is QSGD's stochastic rounding with the maximum norm.
"""

from aquila.core.method import Method
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.link_bits import UploadTime, WidthWithinTime, link_bits_method

WIDTHS = (2, 4, 8, 16)
"""Bits per coordinate that a device may use."""


@method_factory(
    paper="Liu et al., Ensemble Distillation Based Adaptive Quantization for Supporting Federated "
    "Learning in Wireless Networks, IEEE Transactions on Wireless Communications 2022",
    lost_reply="The server averages the replies that arrived.",
    reconstruction="The ensemble distillation is left out, because it needs public data. The rule "
    "for the widths, the default of T and the quantizer are ours; the abstract has none.",
)
def aqed(
    alpha: Alpha = 0.1,
    upload_time: UploadTime = 0.0,
    work: WorkOption = "gradient",
) -> Method:
    """AQeD's bit widths by bandwidth, without its ensemble distillation; needs a link model."""
    return link_bits_method("aqed", alpha, work, WidthWithinTime(upload_time, WIDTHS))
