"""LAQ: lazily aggregated quantized gradients (Sun et al. 2019, arXiv 1909.07588).

A device quantizes its innovation to a fixed width. It uploads if the innovation is large compared
with the last D steps and the quantization errors, or after t_bar silent rounds. The original sums
over devices. Here the server averages, so the factor 1 / (α² M²) becomes 1 / α². The trigger
averages the steps so far, at most D, so each step weighs more in the first rounds.

If the quantization error is as large as the gradient, the error terms can silence every device.
That happens on the digits data set with 4 bits or fewer, and at 6 bits if the tensors of the model
have very different scales: the largest one determines the grid of all. With `range=tensor` each
tensor has its own range. `errors=0` removes the error terms. The paper has one range and
`errors=3`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import torch

from aquila.core.innovation import CandidateUpload, Innovation, measure
from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Packet
from aquila.core.parameter import Bounds
from aquila.core.random import Key
from aquila.core.tensor_grid import TensorGridReader, midrise_tensors
from aquila.core.tensors import checksum_scalars, shapes_of
from aquila.core.vector import Vector, relative_norm, squared_norm
from aquila.methods.parts.factory import Alpha, UploadBits, WorkOption, method_factory
from aquila.methods.parts.memory import MemoryServer

XiOption = Annotated[float, Bounds("weight of the average past step in the trigger", 0)]
ErrorsOption = Annotated[float, Bounds("factor on the squared errors in the trigger; 0: none", 0)]
DepthOption = Annotated[int, Bounds("past steps in the trigger, D", 1)]
MaxSilenceOption = Annotated[int, Bounds("silent rounds after which a device uploads anyway", 1)]
Range = Literal["vector", "tensor"]


@dataclass(frozen=True, eq=False)
class LaqState:
    """State of a device: memory, squared error of the last upload, and silent rounds since then."""

    q: Vector
    error_squared: float
    rounds_silent: int


@dataclass(frozen=True)
class LaqDevice:
    """Quantizer of fixed width and trigger of a device."""

    alpha: float
    bits: int
    xi: float
    t_bar: int
    work: Work
    errors: float = 3.0
    range_of: Range = "vector"

    def init(self, like: Vector) -> LaqState:
        """Start with t_bar silent rounds, so that the first reply is an upload."""
        return LaqState(torch.zeros_like(like), 0.0, self.t_bar)

    def step(self, state: LaqState, order: Packet, oracle: Oracle, key: Key) -> Turn[LaqState]:
        """Upload if the innovation is significant (LAQ, Eq. 7) or after t_bar silent rounds."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        v = measure(gradient, state.q)
        if self.range_of == "vector":
            return self.answer(state, order, loss, v, (self.bits,))
        shapes = shapes_of(oracle, gradient)
        per_tensor = partial(midrise_per_tensor, shapes=shapes)
        turn = self.answer(state, order, loss, v, (self.bits,), per_tensor)
        if turn.reply.vector is None:
            return turn
        return replace(turn, reply=replace(turn.reply, scalars=checksum_scalars(shapes)))

    def answer(
        self,
        state: LaqState,
        order: Packet,
        loss: float,
        v: Innovation,
        widths: Sequence[int],
        quantize: Callable[[Innovation, int], CandidateUpload | None] = Innovation.midrise_or_dense,
    ) -> Turn[LaqState]:
        """Upload the innovation at the first width at which it is significant.

        If there is none, skip; after t_bar silent rounds upload at the last width.
        """
        waiting = replace(state, rounds_silent=min(state.rounds_silent + 1, self.t_bar))
        candidate, significant = None, False
        for bits in widths:
            candidate = quantize(v, bits)
            if candidate is None:
                break
            significant = self.is_significant(candidate, state, order.scalar("drift"))
            if significant:
                break
        if candidate is None:
            return Turn(waiting, Packet(order.round), {"loss": loss})
        ratio = relative_norm(candidate.error_squared, v.squared_norm)
        notes = {"loss": loss, "error_ratio": ratio}
        if not significant and state.rounds_silent < self.t_bar:
            return Turn(waiting, Packet(order.round), notes)
        uploaded = LaqState(candidate.memory, candidate.error_squared, 0)
        return Turn(uploaded, Packet(order.round, candidate.upload), notes)

    def is_significant(self, candidate: CandidateUpload, state: LaqState, drift: float) -> bool:
        """Return whether an upload is large compared with the last steps and the errors."""
        threshold = self.xi / self.alpha**2 * drift + self.errors * (
            candidate.error_squared + state.error_squared
        )
        return candidate.sent_squared >= threshold

    def memory(self, state: LaqState) -> Vector:
        """Return q_m."""
        return state.q


def midrise_per_tensor(
    v: Innovation, bits: int, shapes: tuple[torch.Size, ...]
) -> CandidateUpload | None:
    """Quantize an innovation with one range per tensor; None if it is zero."""
    difference = v.gradient - v.memory
    grids = midrise_tensors(difference, bits, shapes)
    if grids is None:
        return None
    dq = grids.decode()
    sizes = squared_norm(dq), squared_norm(difference - dq)
    return CandidateUpload(grids.to_codes, v.memory + dq, *sizes)


@method_factory(
    paper="Sun et al., Communication-Efficient Distributed Learning via Lazily Aggregated "
    "Quantized Gradients, 2019, arXiv 1909.07588",
    lost_reply="The device counts as absent from the round: it rolls its memory, error and clock "
    "back.",
)
def laq(
    alpha: Alpha = 0.1,
    bits: UploadBits = 6,
    xi: XiOption = 0.8,
    depth: DepthOption = 10,
    t_bar: MaxSilenceOption = 100,
    errors: ErrorsOption = 3.0,
    work: WorkOption = "gradient",
    range: Annotated[
        Range, "coordinates that share a grid: the whole vector or a tensor"
    ] = "vector",
) -> Method:
    """Innovations quantized to a fixed width, uploaded only when significant."""
    return Method(
        "laq",
        LaqDevice(alpha, bits, xi, t_bar, work, errors, range),
        MemoryServer(alpha, depth, average_drift=True),
        TensorGridReader() if range == "tensor" else None,
    )
