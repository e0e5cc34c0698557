"""EDEN: a randomly rotated gradient, quantized, with an unbiased scale (Vargaftik et al. 2022).

A random rotation R makes the coordinates of any gradient look like a normal sample. With the scale
S = ||g||² / ⟨Rg, Q(Rg)⟩ what is decoded, S Rᵀ Q(Rg), is right on average for rotations that are
uniform (EDEN, Theorem 2.1); as in the paper, randomized Hadamard transforms take their place. At
one bit Q gives signs, which is the paper's code; at more, a uniform grid stands in for its
Lloyd-Max points, because a frame holds uniform grids.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from aquila.core.fleet import DeviceId
from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of, uploads
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
        """Remember nothing."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with codes of the rotated gradient."""
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


@dataclass(frozen=True)
class EdenServer(MeanServer):
    """theta <- theta - alpha * mean of the replies, turned back."""

    def check(self, reply: Packet) -> None:
        """Take replies that say how to turn them back."""
        if reply.vector is None:
            return
        seed = reply.scalar("seed")
        if not (0 <= seed < SEED_LIMIT and seed.is_integer()):
            raise WireError(f"reply was rotated with {seed:g}, which is no seed")

    def decode_uploads(
        self, replies: Mapping[DeviceId, Packet]
    ) -> Iterable[tuple[DeviceId, Vector]]:
        """Turn the vectors back."""
        for device, rotated in uploads(replies):
            yield device, unrotate(rotated, Key((int(replies[device].scalar("seed")),)))


@method_factory(
    paper="Vargaftik et al., EDEN: Communication-Efficient and Robust Distributed Mean Estimation "
    "for Federated Learning, ICML 2022, arXiv 2108.08842",
    lost_reply="the round's average is taken over the replies that arrived, and stays unbiased if "
    "losses are independent of the data",
)
def eden(
    alpha: Alpha = 0.1,
    bits: Annotated[int, Bounds("bits a coordinate of an upload", 1, 31)] = 1,
    work: WorkOption = "gradient",
) -> Method:
    """Few bits a coordinate of a randomly rotated gradient, right on average."""
    return Method("eden", EdenDevice(alpha, bits, work), EdenServer(alpha))
