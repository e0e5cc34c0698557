"""What the second pass is given and what it gives."""

from dataclasses import dataclass
from typing import NamedTuple

import torch


@dataclass(frozen=True)
class Grid:
    """Points `step * psi - largest` for psi from 0 to `last`, as numbers of the vector's type."""

    largest: float
    step: float
    last: float
    code: torch.dtype


class Quantized(NamedTuple):
    """Codes psi of v, the memory moved by dq = step * psi - largest, and two squared norms."""

    codes: torch.Tensor
    moved: torch.Tensor
    sent: float
    error: float
