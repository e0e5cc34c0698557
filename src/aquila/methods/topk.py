"""Top-k sparsification with error feedback (Stich et al. 2018, arXiv 1809.07599).

A device adds its gradient to the error that it has not sent yet, e <- e + g. It sends the k largest
coordinates of e with almost exact values, u = top_k(e). It keeps the rest, e <- e - u. This is
Algorithm 1 of arXiv 1809.07599; Alistarh et al. (2018, arXiv 1809.10505) analyse the same method.

Frames hold uniform grids, so values are sent as 31-bit codes on a grid of 2³¹ - 1 points with a
zero. The rounding error stays in e. Coordinates with the same magnitude as the k-th largest are all
sent.

The papers count 32 bits plus the index, 32 + log₂ d, per sent coordinate. The records' `paper_bits`
counts the 31 bits of the codes for all d coordinates. The coded frame is far smaller, so
`paper_bits` is not a lower bound on the bytes.

With a constant step size the method does not reach the optimum if the devices' gradients differ
there: the errors do not vanish.
"""

from dataclasses import dataclass

import torch

from aquila.core.method import Method
from aquila.core.packet import Codes, code_dtype
from aquila.core.passes import passes_for
from aquila.core.quantize import levels_for_bits
from aquila.core.vector import Vector, max_norm
from aquila.methods.parts.error_feedback import ErrorFeedbackDevice
from aquila.methods.parts.factory import Alpha, DensityOption, WorkOption, method_factory
from aquila.methods.parts.mean import MeanServer

BITS = 31
LEVELS = levels_for_bits(BITS)


def top_k(v: Vector, k: int) -> Codes | None:
    """Return the k largest coordinates as codes, all others as zero; None for the zero vector."""
    step = v.new_full((1,), max_norm(v) / LEVELS)
    if not bool(step > 0):  # zero, or too small to be divided into levels
        return None
    kept = torch.where(v.abs() >= passes_for(v).kth_largest(v, k), v, 0)
    whole_steps = (kept.double() / step).round_().clamp_(-LEVELS, LEVELS)
    codes = (whole_steps + LEVELS).to(code_dtype(BITS))
    return Codes(codes, BITS, -(step * LEVELS), step, v.numel())


@dataclass(frozen=True)
class TopK:
    """Keeps a fraction of the coordinates, the largest ones."""

    density: float

    def __call__(self, v: Vector) -> Codes | None:
        """Return the largest coordinates as codes."""
        return top_k(v, max(1, round(self.density * v.numel())))


@method_factory(
    paper="Stich, Cordonnier and Jaggi, Sparsified SGD with Memory, 2018, arXiv 1809.07599; "
    "Alistarh et al., The Convergence of Sparsified Gradient Methods, 2018, arXiv 1809.10505",
    lost_reply="The server averages the uploads that arrived. The device rolls its error back, "
    "without the gradient of that round.",
)
def topk(
    alpha: Alpha = 0.1,
    density: DensityOption = 0.01,
    work: WorkOption = "gradient",
) -> Method:
    """The k largest coordinates of the accumulated error, with almost exact values."""
    device = ErrorFeedbackDevice(alpha, TopK(density), work)
    return Method("topk", device, MeanServer(alpha))
