"""EDEN: a randomly rotated gradient, quantized, with an unbiased scale (Vargaftik et al. 2022).

After a random rotation R the coordinates of any gradient look like a normal sample. With the scale
S = ||g||² / ⟨Rg, Q(Rg)⟩ the decoded vector S Rᵀ Q(Rg) is unbiased if R is a uniform rotation (EDEN,
Theorem 2.1). As in the paper, randomized Hadamard transforms replace uniform rotations.

- One bit: Q returns signs, which is the paper's code. The relative squared error ω is π/2 - 1.
- More bits: Q rounds to a clipped uniform grid, the best one for a normal sample. It replaces the
  paper's Lloyd-Max points, because frames hold uniform grids. ω is 0.135, 0.039 and 0.012 at 2, 3
  and 4 bits; Lloyd-Max points give 0.133, 0.036 and 0.010.
- Less than one bit: with `density` p below 1, both sides draw that fraction of the rotated
  coordinates from the seed. Only their signs are sent, and the decoded ones are divided by p. ω is
  π/(2p) - 1.

Below one bit, a frame still has d codes: the signs of the drawn coordinates, then zeros. The coder
reduces the zeros to a few bytes. With a million coordinates and p = 0.1, a frame has 12,757 bytes,
and the signs alone 12,500. The records' `paper_bits` counts all d codes. A norm limit sees the
codes, whose norm is 1/√p times that of the decoded vector.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch

from aquila.core.method import Method, Oracle, Turn, Work, decode_upload, local_work, theta_of
from aquila.core.packet import Codes, Packet, WireError, code_dtype
from aquila.core.parameter import Bounds
from aquila.core.quantize import midrise
from aquila.core.random import Key
from aquila.core.rotation import rotate, unrotate_
from aquila.core.vector import Vector, error_ratio, squared_norm
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.mean import MeanServer, NoState

SEED_LIMIT = 2**48

NORMAL_STEPS = {
    2: 0.995687, 3: 0.586019, 4: 0.335201, 5: 0.188139, 6: 0.104063, 7: 0.056868, 8: 0.030762,
}  # fmt: skip
"""Step of the uniform grid with the least squared error, by bits, for a standard normal sample.

The grid is ±(i + 1/2) step for i below 2**(bits - 1), and values beyond it are clipped. Each entry
minimises 1 - 2 E[x Q(x)] + E[Q(x)²]. Both expectations are sums over the intervals of the grid with
the density and the distribution function of the normal distribution; tests/methods/test_eden.py
computes them.
"""


@dataclass(frozen=True)
class EdenDevice:
    """Sends its rotated gradient on a scaled grid, and the seed of the rotation."""

    alpha: float
    bits: int
    density: float
    work: Work

    def init(self, like: Vector) -> NoState:
        """Start without state."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with the codes of the rotated gradient."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        seed = int(key.numpy().integers(SEED_LIMIT))
        rotated = rotate(gradient, Key((seed,)))
        codes = midrise(rotated, 1) if self.bits == 1 else normal_grid(rotated, self.bits)
        if codes is None:
            return Turn(state, Packet(order.round), {"loss": loss})
        scale = squared_norm(gradient) / float(rotated.double() @ codes.decode().double())
        codes = replace(codes, low=codes.low * scale, step=codes.step * scale)
        if self.density < 1:
            codes = drawn_first(codes, self.density, seed)
        reply = Packet(order.round, codes, {"seed": float(seed)})
        sent = RotatedUpload(self.density)(reply)
        return Turn(state, reply, {"loss": loss, "error_ratio": error_ratio(gradient, sent)})


def normal_grid(v: Vector, bits: int) -> Codes | None:
    """Quantize a vector that looks like a normal sample; None for the zero vector."""
    deviation = math.sqrt(squared_norm(v) / v.numel())
    step = v.new_full((1,), NORMAL_STEPS[bits] * deviation)
    if not bool(step > 0):
        return None
    half = 2 ** (bits - 1)
    psi = (v / step).floor_().clamp_(-half, half - 1).add_(half)
    return Codes(psi.to(code_dtype(bits)), bits, -(step * (half - 0.5)), step, v.numel())


def drawn_coordinates(dimension: int, density: float, seed: int) -> torch.Tensor:
    """Return the coordinates that both sides draw from the seed, at least one."""
    count = max(1, round(density * dimension))
    generator = Key((seed,)).child(2).numpy()  # the rotation uses children 0 and 1
    drawn = generator.choice(dimension, size=count, replace=False, shuffle=False)
    return torch.from_numpy(np.sort(drawn))


def drawn_first(signs: Codes, density: float, seed: int) -> Codes:
    """Return the signs of the drawn coordinates, then zeros; the grid grows by 1/p."""
    drawn = drawn_coordinates(signs.dimension, density, seed).to(signs.codes.device)
    codes = torch.zeros_like(signs.codes)
    codes[: len(drawn)] = signs.codes[drawn]
    gain = signs.dimension / len(drawn)
    return replace(signs, codes=codes, low=signs.low * gain, step=signs.step * gain)


@dataclass(frozen=True)
class RotatedUpload:
    """Decodes the vector of a reply: puts drawn coordinates in their places and rotates back."""

    density: float

    def __call__(self, reply: Packet) -> Vector:
        """Return the estimate of the gradient."""
        sent, seed = decode_upload(reply), int(reply.scalar("seed"))
        if self.density < 1:
            drawn = drawn_coordinates(sent.numel(), self.density, seed).to(sent.device)
            sent = torch.zeros_like(sent).index_copy_(0, drawn, sent[: len(drawn)])
        return unrotate_(sent, Key((seed,)))


def check_seed(reply: Packet) -> None:
    """Raise WireError if an upload has no valid rotation seed."""
    if reply.vector is None:
        return
    seed = reply.scalar("seed")
    if not (0 <= seed < SEED_LIMIT and seed.is_integer()):
        raise WireError(
            f"the rotation seed of a reply must be a whole number from 0 to {SEED_LIMIT - 1}, "
            f"not {seed:g}"
        )


@method_factory(
    paper="Vargaftik et al., EDEN: Communication-Efficient and Robust Distributed Mean Estimation "
    "for Federated Learning, ICML 2022, arXiv 2108.08842",
    lost_reply="The server averages the replies that arrived. The average stays unbiased if losses "
    "are independent of the data.",
)
def eden(
    alpha: Alpha = 0.1,
    bits: Annotated[int, Bounds("bits per coordinate of an upload", 1, 8)] = 1,
    density: Annotated[
        float, Bounds("fraction of the rotated coordinates that is sent", above=0, high=1)
    ] = 1.0,
    work: WorkOption = "gradient",
) -> Method:
    """Randomly rotated gradients at a few bits per coordinate or less than one, unbiased."""
    if density < 1 and bits > 1:
        raise ValueError(f"eden: density below 1 needs bits=1, not bits={bits}")
    server = MeanServer(alpha, RotatedUpload(density), check_seed)
    return Method("eden", EdenDevice(alpha, bits, density, work), server)
