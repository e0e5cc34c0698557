"""EF-signSGD: scaled signs with error feedback (Karimireddy et al. 2019, arXiv 1901.09847).

A device adds its gradient to the error that it has not sent yet, p = e + g. It sends the sign of
each coordinate times the mean magnitude, u = (||p||_1 / d) sign(p), one bit per coordinate. It
keeps the rest, e <- p - u (Algorithm 1).

The authors compress each layer on its own. Here `bucket` consecutive coordinates share a magnitude,
which adds 8 bytes per bucket; `bucket=0` is Algorithm 1 with one magnitude. With one magnitude and
a sparse gradient, such as that of an embedding, nearly all of the gradient stays in e.

One bit has no code for zero, so a coordinate that is exactly zero sends the positive sign. The
error of that goes into e. A device with p = 0 skips the round.

The paper has a single device. With several, the server averages the uploads. As for `topk`, the
errors do not vanish at a constant step size if the devices' gradients differ at the optimum.
"""

from dataclasses import dataclass
from typing import Annotated

import torch

from aquila.core.method import Method
from aquila.core.packet import Codes
from aquila.core.parameter import Bounds
from aquila.core.vector import Vector
from aquila.methods.parts.error_feedback import ErrorFeedbackDevice
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.mean import MeanServer


@dataclass(frozen=True)
class ScaledSigns:
    """Compresses a vector to its signs, times the mean magnitude of each bucket."""

    bucket: int

    def __call__(self, v: Vector) -> Codes | None:
        """Return the scaled signs, or None for the zero vector."""
        bucket = min(self.bucket, v.numel()) or v.numel()
        whole = v.numel() - v.numel() % bucket
        parts = [v[:whole].reshape(-1, bucket), v[whole:].reshape(1, -1)]
        size = torch.cat([rows.abs().mean(dim=1) for rows in parts if rows.numel()])
        if not bool((size > 0).any()):
            return None
        return Codes((v >= 0).byte(), 1, -size, 2 * size, bucket)


@method_factory(
    paper="Karimireddy et al., Error Feedback Fixes SignSGD and Other Gradient Compression "
    "Schemes, 2019, arXiv 1901.09847",
    lost_reply="The server averages the uploads that arrived. The device rolls its error back, "
    "without the gradient of that round.",
)
def ef_signsgd(
    alpha: Alpha = 0.1,
    bucket: Annotated[int, Bounds("coordinates that share one magnitude; 0: all", 0)] = 4096,
    work: WorkOption = "gradient",
) -> Method:
    """One scaled sign per coordinate; each device keeps its error for the next round."""
    device = ErrorFeedbackDevice(alpha, ScaledSigns(bucket), work)
    return Method("ef_signsgd", device, MeanServer(alpha))
