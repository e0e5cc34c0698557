"""FedDQ: fewer bits as the updates shrink (Qu, Song and Tsui 2022, arXiv 2110.02291).

Each tensor of a model update ΔW gets b = ⌈log₂(range / resolution)⌉ bits, where the range is its
maximum minus its minimum. So the steps of all grids stay close to the resolution, and the bits fall
during training. The server averages the updates. Devices send ΔW / α, and the range is that of ΔW.
With a schedule, α is the step size of the round.

Two points differ from the authors' code:

- Their codes are round(ΔW / step), clipped to -2^(b-1) .. 2^(b-1) - 1. If a tensor is mostly of one
  sign, the clipping cuts off up to half of its range. Here the grid begins at the minimum, which
  is sent too, so no error exceeds half a step.
- A range at or below the resolution would give no bits. Here b is at least 1, and at most 24.

A frame has one width for all codes, the largest b. The coder removes unused bits. The records'
`paper_bits` counts the largest b for all coordinates, more than the paper's Σ b_l d_l.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch

from aquila.core.method import Method
from aquila.core.packet import code_dtype
from aquila.core.parameter import Bounds
from aquila.core.tensor_grid import TensorGridReader, TensorGrids
from aquila.core.tensors import Shapes, per_coordinate, split_tensors
from aquila.core.vector import Vector
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.mean import MeanServer
from aquila.methods.parts.tensor_update import TensorUpdateDevice

MAX_BITS = 24
"""Up to this width float32 numbers hold every code."""


def bits_for_range(size: float, resolution: float) -> int:
    """Return ⌈log₂(size / resolution)⌉, from 1 to 24."""
    mantissa, exponent = math.frexp(size / resolution)  # exact on every platform
    return min(max(exponent - (mantissa == 0.5), 1), MAX_BITS)


def quantize(v: Vector, resolution: float, shapes: Shapes) -> TensorGrids:
    """Round each tensor to the nearest point of a grid from its minimum to its maximum."""
    ends = [torch.aminmax(part) for part in split_tensors(v, shapes)]
    low = torch.stack([end.min for end in ends])
    size = torch.stack([end.max for end in ends]).double() - low.double()
    bits = [bits_for_range(range_, resolution) for range_ in size.tolist()]
    top = torch.tensor([2**b - 1 for b in bits], dtype=torch.float64, device=v.device)
    step = (size / top).to(v.dtype)
    widths = per_coordinate(step, shapes)
    codes = ((v - per_coordinate(low, shapes)) / widths).round_().masked_fill_(widths == 0, 0)
    codes = torch.minimum(codes, per_coordinate(top.to(v.dtype), shapes))
    return TensorGrids(codes.to(code_dtype(max(bits))), max(bits), low, step, shapes)


@dataclass(frozen=True)
class RangeGrids:
    """Compresses an update with bits that follow the range of each tensor."""

    resolution: float

    def __call__(self, update: Vector, shapes: Shapes, alpha: float) -> TensorGrids:
        """Return the update on grids whose steps are close to the resolution ÷ alpha."""
        return quantize(update, self.resolution / alpha, shapes)


@method_factory(
    paper="Qu, Song and Tsui, FedDQ: Communication-Efficient Federated Learning with Descending "
    "Quantization, 2022, arXiv 2110.02291",
    lost_reply="The server averages the replies that arrived.",
    reconstruction="The grid begins at the minimum of the tensor, because the authors' clipping "
    "cuts off tensors of one sign. A tensor gets at least one bit.",
)
def feddq(
    alpha: Alpha = 0.1,
    resolution: Annotated[float, Bounds("range of a model update per level", 1e-12)] = 0.001,
    work: WorkOption = "gradient",
) -> Method:
    """Model updates with bits that follow the range of each tensor and fall as updates shrink."""
    device = TensorUpdateDevice(alpha, work, RangeGrids(resolution))
    return Method("feddq", device, MeanServer(alpha), TensorGridReader())
