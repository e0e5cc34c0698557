"""AQUILA-Peak: unbiased uploads of the largest rotated coordinates, one per block.

This is the project's method for a thousandth of the bytes. A round on device m with gradient g and
memory q_m:

    v = g - q_m,    u = Q(v),    q_m <- q_m + η u

The server keeps q̄, the mean of the memories. It updates theta <- theta - α (q̄ + mean u) and
q̄ <- q̄ + η mean u (`parts/damped.py`).

- The quantizer Q (`core/peaks.py`) cuts v into chunks and rotates each of them at random, so that
  its coordinates look like a normal sample. It sends the position and the sign of the largest one
  in each block of n coordinates. That is 1 + log2 n bits per block, and needs no entropy coder.
- u equals v on average. The relative squared error ω of a chunk is close to n / a² - 1, where a is
  the expected largest magnitude of n normal numbers: 26.6 for n = 256. No unbiased quantizer of a
  normal sample can have less than 20 at the same 9 / 256 bits per coordinate.
- Chunks with larger coordinates have shorter blocks, so that they get less noise.
- The memory learns the part of the gradients in which devices always differ. With full gradients
  the method thus reaches the exact optimum. Large models with local epochs have no memory by
  default (docs/our-methods-defaults.md).

The peak of a block is the nearest point of a cross-polytope, which vqSGD (Gandikota et al. 2019,
arXiv 1911.07971) uses as a codebook. Zhu, Ghosh and Mazumdar (2023, arXiv 2307.07941) send the
largest block or coordinate for biased uploads. Unbiased scales after a rotation are EDEN's
(Vargaftik et al. 2022, arXiv 2108.08842), and the damped memory is DIANA's (Mishchenko et al. 2019,
arXiv 1901.09269).
"""

from dataclasses import dataclass
from typing import Annotated

import torch

from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Packet
from aquila.core.parameter import Bounds
from aquila.core.peak_reader import PeakReader
from aquila.core.peaks import MAX_BLOCK, expected_error, quantize_peaks
from aquila.core.random import Key
from aquila.core.tensors import checksum_scalars, shapes_of
from aquila.core.vector import Vector
from aquila.methods.parts.density import DENSITY_SCALAR, PEAK_DENSITY, positive_scalar
from aquila.methods.parts.factory import MAX_DENSITY, Alpha, WorkOption, method_factory
from aquila.methods.parts.mean import NoState
from aquila.methods.parts.memory import Memory
from aquila.methods.parts.periodic_uploads import (
    UploadEvery,
    resolve_upload_every,
    with_periodic_uploads,
)
from aquila.methods.parts.sparse_memory import RATE_SCALAR, MemoryOption, sparse_server

AutoDensity = Annotated[
    float,
    Bounds(
        "fraction of the rotated coordinates sent per round; 0: 1/320 for large models, up to 1/50 "
        "for small ones, more for fewer than ten devices",
        0,
        MAX_DENSITY,
    ),
]


def block_of(density: float) -> int:
    """Return the number of coordinates per sent one, n."""
    return min(MAX_BLOCK, max(1, round(1 / density)))


def peak_memory_rate(density: float) -> float:
    """Return the rate of the memories, 1 / (1 + ω), at which their error shrinks fastest."""
    return 1 / (1 + expected_error(block_of(density)))


@dataclass(frozen=True)
class AquilaPeakDevice:
    """A device with a damped memory, which stays zero if orders have no rate."""

    alpha: float
    work: Work

    def init(self, like: Vector) -> Memory:
        """Start with q_m = 0."""
        return Memory(torch.zeros_like(like))

    def step(self, state: Memory, order: Packet, oracle: Oracle, key: Key) -> Turn[Memory]:
        """Send u = Q(g - q_m) and add η u to q_m."""
        block = block_of(positive_scalar(order, DENSITY_SCALAR, MAX_DENSITY))
        rate = positive_scalar(order, RATE_SCALAR, 1.0) if RATE_SCALAR in order.scalars else 0.0
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        v = gradient - state.q if rate else gradient
        shapes = shapes_of(oracle, v)
        quantized = quantize_peaks(v, shapes, block, key, order.round)
        if quantized is None:
            return Turn(state, Packet(order.round), {"loss": loss})
        upload, error_ratio = quantized
        notes = {"loss": loss, "error_ratio": error_ratio}
        reply = Packet(order.round, upload.to_codes(), checksum_scalars(shapes))
        after = Memory(state.q + rate * upload.decode()) if rate else state
        return Turn(after, reply, notes)

    def memory(self, state: Memory) -> Vector:
        """Return q_m."""
        return state.q


@dataclass(frozen=True)
class StatelessPeakDevice:
    """A device that keeps nothing between rounds."""

    alpha: float
    work: Work

    def init(self, like: Vector) -> NoState:
        """Start without state."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Send u = Q(g)."""
        device = AquilaPeakDevice(self.alpha, self.work)
        turn = device.step(Memory(torch.zeros(())), order, oracle, key)
        return Turn(state, turn.reply, turn.notes)


@method_factory(
    paper="this project, 2026; scale after Vargaftik et al. 2022, memory after Mishchenko et al. "
    "2019",
    lost_reply="The server averages the uploads that arrived and keeps using the device's memory. "
    "The device rolls its memory back.",
)
def aquila_peak(
    alpha: Alpha = 0.1,
    density: AutoDensity = 0.0,
    work: WorkOption = "gradient",
    memory: MemoryOption = "auto",
    upload_every: UploadEvery = 1,
) -> Method:
    """Unbiased uploads of the largest coordinate of each block, after a random rotation."""
    every = resolve_upload_every(upload_every, work)
    server = sparse_server(alpha, density, PEAK_DENSITY, peak_memory_rate, every, memory, work)
    device = StatelessPeakDevice if memory == "none" else AquilaPeakDevice
    method = Method("aquila_peak", device(alpha, work), server, PeakReader())
    return with_periodic_uploads(method, every, alpha, work)
