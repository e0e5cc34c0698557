"""EF-signSGD: scaled signs with error feedback (Karimireddy et al. 2019, arXiv 1901.09847).

A device adds its gradient to the error that it has not sent yet, p = e + g. It sends the sign of
each coordinate times the mean magnitude, u = (||p||_1 / d) sign(p), one bit per coordinate. It
keeps the rest, e <- p - u (Algorithm 1).

One bit has no code for zero, so a coordinate that is exactly zero sends the positive sign. The
error of that goes into e. A device with p = 0 skips the round.

The paper has a single device. With several, the server averages the uploads. As for `topk`, the
errors do not vanish at a constant step size if the devices' gradients differ at the optimum.
"""

from dataclasses import dataclass

from aquila.core.method import Method
from aquila.core.packet import Codes
from aquila.core.vector import Vector
from aquila.methods.parts.error_feedback import ErrorFeedbackDevice
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.mean import MeanServer


@dataclass(frozen=True)
class ScaledSigns:
    """Compresses a vector to its signs times its mean magnitude."""

    def __call__(self, v: Vector) -> Codes | None:
        """Return the scaled signs, or None for the zero vector."""
        size = v.abs().mean().reshape(1)
        if not bool(size > 0):
            return None
        return Codes((v >= 0).byte(), 1, -size, 2 * size, v.numel())


@method_factory(
    paper="Karimireddy et al., Error Feedback Fixes SignSGD and Other Gradient Compression "
    "Schemes, 2019, arXiv 1901.09847",
    lost_reply="The server averages the uploads that arrived. The device rolls its error back, "
    "without the gradient of that round.",
)
def ef_signsgd(alpha: Alpha = 0.1, work: WorkOption = "gradient") -> Method:
    """One scaled sign per coordinate; each device keeps its error for the next round."""
    device = ErrorFeedbackDevice(alpha, ScaledSigns(), work)
    return Method("ef_signsgd", device, MeanServer(alpha))
