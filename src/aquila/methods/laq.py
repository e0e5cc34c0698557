"""LAQ: lazily aggregated quantized gradients (Sun et al. 2019, arXiv 1909.07588).

A device quantizes its innovation to a fixed width. It uploads if the innovation is large compared
with the last D steps and the quantization errors, or after t_bar silent rounds. The original sums
over devices. Here the server averages, so the factor 1 / (α² M²) becomes 1 / α². The trigger
averages the steps so far, at most D, so each step weighs more in the first rounds.

If the quantization error is as large as the gradient, the error terms can silence every device.
That happens on the digits data set with 4 bits or fewer, and with 11 million coordinates at 6 bits.
There the tensors of a model have different scales, and one range serves all of them. `errors=0`
removes the error terms, `errors=3` is the paper's rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch

from aquila.core.innovation import CandidateUpload, Innovation, measure
from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Packet
from aquila.core.parameter import Bounds
from aquila.core.random import Key
from aquila.core.vector import Vector, relative_norm
from aquila.methods.parts.factory import Alpha, UploadBits, WorkOption, method_factory
from aquila.methods.parts.memory import MemoryServer

XiOption = Annotated[float, Bounds("weight of the average past step in the trigger", 0)]
ErrorsOption = Annotated[float, Bounds("factor on the squared errors in the trigger; 0: none", 0)]
DepthOption = Annotated[int, Bounds("past steps in the trigger, D", 1)]
MaxSilenceOption = Annotated[int, Bounds("silent rounds after which a device uploads anyway", 1)]


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

    def init(self, like: Vector) -> LaqState:
        """Start with t_bar silent rounds, so that the first reply is an upload."""
        return LaqState(torch.zeros_like(like), 0.0, self.t_bar)

    def step(self, state: LaqState, order: Packet, oracle: Oracle, key: Key) -> Turn[LaqState]:
        """Upload if the innovation is significant (LAQ, Eq. 7) or after t_bar silent rounds."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        return self.answer(state, order, loss, measure(gradient, state.q), (self.bits,))

    def answer(
        self, state: LaqState, order: Packet, loss: float, v: Innovation, widths: Sequence[int]
    ) -> Turn[LaqState]:
        """Upload the innovation at the first width at which it is significant.

        If there is none, skip; after t_bar silent rounds upload at the last width.
        """
        waiting = replace(state, rounds_silent=min(state.rounds_silent + 1, self.t_bar))
        candidate, significant = None, False
        for bits in widths:
            candidate = v.midrise_or_dense(bits)
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
) -> Method:
    """Innovations quantized to a fixed width, uploaded only when significant."""
    return Method(
        "laq",
        LaqDevice(alpha, bits, xi, t_bar, work, errors),
        MemoryServer(alpha, depth, average_drift=True),
    )
