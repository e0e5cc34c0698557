"""EDEN: a randomly rotated gradient, quantized, with an unbiased scale (Vargaftik et al. 2022).

After a random rotation R the coordinates of any gradient look like a normal sample. With the scale
S = ||g||² / ⟨Rg, Q(Rg)⟩ the decoded vector S Rᵀ Q(Rg) is unbiased if R is a uniform rotation (EDEN,
Theorem 2.1). As in the paper, randomized Hadamard transforms replace uniform rotations. With one
bit Q returns signs, which is the paper's code. With more bits a uniform grid replaces the paper's
Lloyd-Max points, because frames hold uniform grids.
"""

from dataclasses import dataclass, replace
from typing import Annotated

from aquila.core.method import Method, Oracle, Turn, Work, decode_upload, local_work, theta_of
from aquila.core.packet import Packet, WireError
from aquila.core.parameter import Bounds
from aquila.core.quantize import midrise
from aquila.core.random import Key
from aquila.core.rotation import rotate, unrotate
from aquila.core.vector import Vector, error_ratio, squared_norm
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.mean import MeanServer, NoState

SEED_LIMIT = 2**48


@dataclass(frozen=True)
class EdenDevice:
    """Sends its rotated gradient on a scaled grid, and the seed of the rotation."""

    alpha: float
    bits: int
    work: Work

    def init(self, like: Vector) -> NoState:
        """Start without state."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with the codes of the rotated gradient."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        seed = int(key.numpy().integers(SEED_LIMIT))
        rotated = rotate(gradient, Key((seed,)))
        codes = midrise(rotated, self.bits)
        if codes is None:
            return Turn(state, Packet(order.round), {"loss": loss})
        scale = squared_norm(gradient) / float(rotated.double() @ codes.decode().double())
        codes = replace(codes, low=codes.low * scale, step=codes.step * scale)
        sent = unrotate(codes.decode(), Key((seed,)))
        notes = {"loss": loss, "error_ratio": error_ratio(gradient, sent)}
        return Turn(state, Packet(order.round, codes, {"seed": float(seed)}), notes)


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


def decode_rotated(reply: Packet) -> Vector:
    """Return the vector of a reply, rotated back."""
    return unrotate(decode_upload(reply), Key((int(reply.scalar("seed")),)))


@method_factory(
    paper="Vargaftik et al., EDEN: Communication-Efficient and Robust Distributed Mean Estimation "
    "for Federated Learning, ICML 2022, arXiv 2108.08842",
    lost_reply="The server averages the replies that arrived. The average stays unbiased if losses "
    "are independent of the data.",
)
def eden(
    alpha: Alpha = 0.1,
    bits: Annotated[int, Bounds("bits per coordinate of an upload", 1, 31)] = 1,
    work: WorkOption = "gradient",
) -> Method:
    """Randomly rotated gradients at a few bits per coordinate, unbiased."""
    server = MeanServer(alpha, decode_rotated, check_seed)
    return Method("eden", EdenDevice(alpha, bits, work), server)
