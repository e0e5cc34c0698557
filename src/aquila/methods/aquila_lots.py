"""AQUILA-Lots: a grid with a zero on which every coordinate draws a lot, and few of them win.

Our own answer to AQUILA (Zhao et al., arXiv 2308.00258), whose grid has no zero and whose skip rule
never fires under gradient noise. What a gradient holds beyond the device's memory, v = g - q_m, is
sent as u = Q(v): a coordinate is told as one wide step, with a probability in proportion to its
size, and is silent otherwise. So u is v on average, and only a `share` of the coordinates costs
bytes. The memory follows slowly, q_m <- q_m + η u, and makes the method exact where gradients are:
what devices will always disagree about is learned, and then neither told nor drawn for any more.
docs/beyond.md has the derivation, the measurements and what did not work.

Drawing in proportion to size is that of Wangni et al. (2018, arXiv 1710.09854) and of QSGD
(Alistarh et al. 2017, arXiv 1610.02132), the damped memory that of DIANA (Mishchenko et al. 2019,
arXiv 1901.09269).
"""

from dataclasses import dataclass

import torch

from aquila.core.method import Method, Oracle, Turn, Work, local_work, theta_of
from aquila.core.packet import Packet
from aquila.core.quantize import lottery
from aquila.core.random import Key
from aquila.core.vector import Vector, error_ratio
from aquila.methods.aquila_zero import ShareOption
from aquila.methods.catalog import Alpha, WorkOption, entry
from aquila.methods.damped import DampedMemoryServer
from aquila.methods.memory import Memory


@dataclass(frozen=True)
class AquilaLotsDevice:
    """Lottery and memory of a device."""

    alpha: float
    share: float
    eta: float
    work: Work

    def init(self, like: Vector) -> Memory:
        """Start with nothing remembered."""
        return Memory(torch.zeros_like(like))

    def step(self, state: Memory, order: Packet, oracle: Oracle, key: Key) -> Turn[Memory]:
        """Send u = Q(g - q_m), or skip if no coordinate wins, and move q_m by η u."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        v = gradient - state.q
        codes = lottery(v, self.share, key.uniform(v))
        if codes is None:
            return Turn(state, Packet(order.round), {"loss": loss})
        u = codes.decode()
        notes = {"loss": loss, "error_ratio": error_ratio(v, u)}
        return Turn(Memory(state.q + self.eta * u), Packet(order.round, codes), notes)


@entry(
    paper="this project, 2026; lottery after Wangni et al. 2018, memory after Mishchenko et al. "
    "2019",
    lost_reply="the mean upload is taken over the replies that arrived; a device whose reply was "
    "lost takes the change of its memory back, and the server reuses its memory",
)
def aquila_lots(
    alpha: Alpha = 0.1,
    share: ShareOption = 0.004,
    work: WorkOption = "gradient",
) -> Method:
    """A grid with a zero on which every coordinate draws a lot: the few that win are sent."""
    eta = 1 / (1 + 1 / share)  # the rate at which a memory learns most, whatever the gradient
    device = AquilaLotsDevice(alpha, share, eta, work)
    return Method("aquila_lots", device, DampedMemoryServer(alpha, eta))
