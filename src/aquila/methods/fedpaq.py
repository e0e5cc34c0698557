"""FedPAQ: quantized results of local training (Reisizadeh et al. 2020, arXiv 1909.13014).

A random fraction of the devices trains on its own data. Each sends the difference of the models,
stochastically rounded as in QSGD, and the server adds the average (Algorithm 1). Device m sends
Q((θ - θ_m) / α), and the step of the server is α times the average.

The paper scales the grid by the 2-norm of the whole vector, `norm=l2`. With millions of coordinates
nearly all of them then round to zero, so the default is the maximum norm.
"""

from typing import Annotated

from aquila.core.method import Method
from aquila.core.parameter import Bounds
from aquila.methods.fedavg import FedAvgServer
from aquila.methods.parts.factory import Alpha, UploadBits, method_factory
from aquila.methods.qsgd import BucketOption, NormOption, QsgdDevice


@method_factory(
    paper="Reisizadeh et al., FedPAQ: A Communication-Efficient Federated Learning Method with "
    "Periodic Averaging and Quantization, 2020, arXiv 1909.13014",
    lost_reply="The server averages the replies that arrived. The average stays unbiased if losses "
    "are independent of the data.",
)
def fedpaq(
    alpha: Alpha = 0.1,
    bits: UploadBits = 4,
    norm: NormOption = "max",
    bucket: BucketOption = 0,
    fraction: Annotated[float, Bounds("fraction of the devices in a round", above=0, high=1)] = 1.0,
) -> Method:
    """Local epochs on a fraction of the devices, then the average of rounded differences."""
    device = QsgdDevice(alpha, bits, norm, bucket, "epochs")
    return Method("fedpaq", device, FedAvgServer(alpha, fraction))
