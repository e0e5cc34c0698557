"""SparseLoCo: local steps, then few coordinates at two bits (Sarfi et al. 2025, arXiv 2508.15706).

A device trains for some local steps, Δ = θ - θ_m, and adds the result to its decayed error,
e <- β e + Δ. It sends the largest coordinates of each chunk of 4096 coordinates at two bits, and
keeps the rest, e <- e - sent. The server steps along the average (Algorithm 1). As in all methods
here, vectors are divided by α and the step is multiplied by it.

Two bits are a sign and one of two magnitudes, s and 2s. Each chunk has its own s. Two steps of
Lloyd's algorithm choose s, so the sent vector is a projection and reduces the error. A frame holds
uniform grids, so the quantizer differs from the authors', which has a table of values.

Combine it with these options of the run:

- `local_optimizer=adamw`, `local_steps=15` or more, and `alpha` as for AdamW, such as 0.001: the
  paper's recipe for language models.
- `server_lr`: the paper's outer step size. It uses no outer momentum: e replaces it.
- DiLoCo, its dense rival: `fedavg` with the same local steps, `server_optimizer=nesterov` and
  `server_momentum=0.9`.
"""

from dataclasses import dataclass
from typing import Annotated

import torch

from aquila.core.method import Method
from aquila.core.packet import Codes, code_dtype
from aquila.core.parameter import Bounds
from aquila.core.quantize import bits_for_levels
from aquila.core.vector import Vector
from aquila.methods.parts.error_feedback import ErrorFeedbackDevice
from aquila.methods.parts.factory import Alpha, DensityOption, method_factory
from aquila.methods.parts.mean import MeanServer

LEVELS = 2
"""Magnitudes of a sent coordinate, in steps: 1 and 2. With a sign they take two bits."""

LLOYD_STEPS = 2


@dataclass(frozen=True)
class ChunkTopK:
    """Keeps the largest coordinates of each chunk, at two bits."""

    density: float
    chunk: int

    def __call__(self, v: Vector) -> Codes | None:
        """Return the codes, with one grid per chunk; None for the zero vector."""
        chunk = min(self.chunk, v.numel())
        whole = v.numel() - v.numel() % chunk
        parts = [v[:whole].reshape(-1, chunk), v[whole:].reshape(1, -1)]
        signed, steps = zip(*(self._quantize(rows) for rows in parts if rows.numel()), strict=True)
        step = torch.cat(steps)
        if not bool((step > 0).any()):
            return None
        bits = bits_for_levels(LEVELS)
        codes = torch.cat([rows.reshape(-1) for rows in signed]) + LEVELS
        return Codes(codes.to(code_dtype(bits)), bits, -(step * LEVELS), step, chunk)

    def _quantize(self, rows: torch.Tensor) -> tuple[torch.Tensor, Vector]:
        """Return the signed magnitudes of each row in steps, and the step of each row."""
        magnitude = rows.abs()
        count = max(1, round(self.density * rows.shape[1]))
        smallest = magnitude.topk(count, dim=1).values[:, -1:]
        kept = (magnitude >= smallest) & (magnitude > 0)
        sent = torch.where(kept, magnitude, 0)
        steps = sent.sum(dim=1, keepdim=True) / kept.sum(dim=1, keepdim=True).clamp_min(1)
        levels = kept.to(rows.dtype)
        for _ in range(LLOYD_STEPS):
            levels = torch.where(sent > 1.5 * steps, LEVELS, kept.to(rows.dtype))
            squares = levels.square().sum(dim=1, keepdim=True).clamp_min(1)
            steps = (levels * sent).sum(dim=1, keepdim=True) / squares
        return levels * rows.sign(), steps.reshape(-1)


@method_factory(
    paper="Sarfi, Thérien, Lidin and Belilovsky, Communication Efficient LLM Pre-training with "
    "SparseLoCo, 2025, arXiv 2508.15706",
    lost_reply="The server averages the uploads that arrived. The device rolls its error back, "
    "without the training of that round.",
)
def sparseloco(
    alpha: Alpha = 0.1,
    density: DensityOption = 0.02,
    beta: Annotated[float, Bounds("factor on the error of earlier rounds", 0, 1)] = 0.95,
    chunk: Annotated[int, Bounds("coordinates per chunk", 1)] = 4096,
) -> Method:
    """Local steps, then the largest coordinates per chunk at two bits, with error feedback."""
    device = ErrorFeedbackDevice(alpha, ChunkTopK(density, chunk), "epochs", beta)
    return Method("sparseloco", device, MeanServer(alpha))
