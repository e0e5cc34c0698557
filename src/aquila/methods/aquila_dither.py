"""AQUILA-Dither: unbiased sparse uploads with a dither that the server derives too.

This project's alternative to AQUILA (Zhao et al., arXiv 2308.00258). AQUILA's grid has no zero, and
its skip rule rarely fires under gradient noise.

A round on device m with gradient g and memory q_m:

    v = g - q_m,    u = Q(v),    q_m <- q_m + η u

The server keeps q̄, the mean of the memories. It updates theta <- theta - α (q̄ + mean u) and
q̄ <- q̄ + η mean u (`parts/damped.py`).

- The quantizer Q sends a coordinate as one wide step with probability proportional to its size, and
  as zero otherwise. So u equals v on average, and only a fraction of the coordinates, the
  `density`, costs bytes.
- The random numbers that decide are the dither. It comes from a seed in the frame, so the server
  derives it too and knows where nonzero coordinates are likely. Each then costs about three bits.
- The memory learns the part of the gradients in which devices always differ. That part is then no
  longer sent and adds no noise. With full gradients the method thus reaches the exact optimum.
- With local epochs of large models there is no memory by default, q_m = 0. Most of an update is
  noise of the minibatches, and a memory of noise doubles that of the uploads.
- Such devices also upload in every second round only, and train on in between
  (`parts/periodic_uploads.py`). One upload of two rounds has less noise than two uploads.
- Uploads are noisy. A higher density reduces the noise for more bytes. The default density depends
  on the sizes of the model and the fleet only, so the cost is known in advance: about 1/1000 of the
  bytes of dense uploads for models with millions of parameters and ten or more devices per round.
- A rising loss shows that the noise is too large for the step size. A device whose loss rises
  doubles its own density for a while (the boost).

docs/our-methods.md explains the method and links to results and proofs.

Sampling in proportion to size follows Wangni et al. (2018, arXiv 1710.09854) and QSGD (Alistarh et
al. 2017, arXiv 1610.02132). The damped memory is DIANA's (Mishchenko et al. 2019, arXiv
1901.09269). Coding with a dither that both sides know is from Ziv (1985) and Zamir and Feder
(1992); UVeQFed (arXiv 2006.03262) uses it in federated learning.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated

import torch

from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Packet
from aquila.core.parameter import Bounds
from aquila.core.random import Key
from aquila.core.updates import dithered_update
from aquila.core.vector import Vector
from aquila.methods.parts.density import DENSITY_SCALAR, DITHER_DENSITY, positive_scalar
from aquila.methods.parts.factory import MAX_DENSITY, Alpha, WorkOption, method_factory
from aquila.methods.parts.periodic_uploads import (
    UploadEvery,
    resolve_upload_every,
    with_periodic_uploads,
)
from aquila.methods.parts.sparse_memory import RATE_SCALAR, MemoryOption, sparse_server
from aquila.methods.parts.stateless_dither import StatelessDitherDevice

LOSS_RISE = 0.2
"""A device doubles its boost if its loss has risen by more than this fraction of its first loss."""
BOOST_DECAY = 0.95
"""Factor on the boost after each round without such a rise."""
MAX_BOOST = 64.0
AutoDensity = Annotated[
    float,
    Bounds(
        "fraction of the coordinates sent per round, at most, unless a device's loss rises; "
        "0: 0.015 for large models, up to 0.06 for small ones, more for fewer than ten devices",
        0,
        MAX_DENSITY,
    ),
]


def best_memory_rate(density: float) -> float:
    """Return the rate η at which the error of the memory shrinks fastest in the worst case.

    It is 1 / (1 + ω), where ω = 1 / density bounds the noise of an upload: E||u - v||² <= ω ||v||².
    """
    return 1 / (1 + 1 / density)


@dataclass(frozen=True, eq=False)
class DitherDeviceState:
    """State of a device: its memory, the history of its loss, and its boost.

    Attributes:
        q: The memory q_m.
        first_loss: Magnitude of the loss in the first round, 0 before it.
        lowest_loss: Lowest loss since the boost last doubled.
        density_boost: Factor on the density of the order.
    """

    q: Vector
    first_loss: float = 0.0
    lowest_loss: float = math.inf
    density_boost: float = 1.0

    def after_loss(self, loss: float) -> "DitherDeviceState":
        """Return the state after a round with this loss: the boost doubles or decays."""
        first, lowest = self.first_loss or abs(loss), min(self.lowest_loss, loss)
        if loss - lowest > LOSS_RISE * first:
            lowest, boost = loss, min(MAX_BOOST, 2 * self.density_boost)
        else:
            boost = max(1.0, BOOST_DECAY * self.density_boost)
        return replace(self, first_loss=first, lowest_loss=lowest, density_boost=boost)


@dataclass(frozen=True)
class AquilaDitherDevice:
    """A device with a damped memory. It uses the density of the order times its own boost."""

    alpha: float
    work: Work

    def init(self, like: Vector) -> DitherDeviceState:
        """Start with q_m = 0."""
        return DitherDeviceState(torch.zeros_like(like))

    def step(
        self, state: DitherDeviceState, order: Packet, oracle: Oracle, key: Key
    ) -> Turn[DitherDeviceState]:
        """Send u = Q(g - q_m) and add η u to q_m.

        If the reply is lost, the device rolls q_m back but keeps what it learnt from the loss.
        """
        requested = positive_scalar(order, DENSITY_SCALAR, MAX_DENSITY)
        # without a rate q_m stays zero
        rate = positive_scalar(order, RATE_SCALAR, 1.0) if RATE_SCALAR in order.scalars else 0.0
        density = min(MAX_DENSITY, state.density_boost * requested)
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        update = dithered_update(gradient, state.q, rate, density, key)
        fallback_state = state.after_loss(loss)
        if update is None:
            notes = {"loss": loss, "density": density}
            return Turn(fallback_state, Packet(order.round), notes, fallback=fallback_state)
        notes = {"loss": loss, "error_ratio": update.error_ratio, "density": density}
        return Turn(
            replace(fallback_state, q=update.memory),
            Packet(order.round, update.codes),
            notes,
            fallback=fallback_state,
        )

    def memory(self, state: DitherDeviceState) -> Vector:
        """Return q_m."""
        return state.q


@method_factory(
    paper="this project, 2026; sampling after Wangni et al. 2018, memory after Mishchenko et al. "
    "2019",
    lost_reply="The server averages the uploads that arrived and keeps using the device's memory. "
    "The device rolls its memory back.",
)
def aquila_dither(
    alpha: Alpha = 0.1,
    density: AutoDensity = 0.0,
    work: WorkOption = "gradient",
    memory: MemoryOption = "auto",
    upload_every: UploadEvery = 0,
) -> Method:
    """Unbiased sparse uploads that send a coordinate with probability proportional to its size."""
    every = resolve_upload_every(upload_every, work)
    server = sparse_server(alpha, density, DITHER_DENSITY, best_memory_rate, every, memory, work)
    device = StatelessDitherDevice if memory == "none" else AquilaDitherDevice
    method = Method("aquila_dither", device(alpha, work), server)
    return with_periodic_uploads(method, every, alpha, work)
