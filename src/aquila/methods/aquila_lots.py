"""AQUILA-Lots: a grid with a zero on which every coordinate draws a lot, and few of them win.

Our own answer to AQUILA (Zhao et al., arXiv 2308.00258), whose grid has no zero and whose skip rule
hardly ever fires under gradient noise. What a gradient holds beyond the device's memory,
v = g - q_m, is sent as u = Q(v): a coordinate is told as one wide step, with a probability in
proportion to its size, and is silent otherwise. So u is v on average, and only a `share` of the
coordinates costs bytes. The memory follows slowly, q_m <- q_m + η u, and makes the method exact
where gradients are: what devices will always disagree about is learned, and then neither told nor
drawn for any more.
Lots are noisy, and M devices average the noise: where a loss is steep in all directions, α L may be
about 2 M `share` at most. For few devices or small models AQUILA-Zero is the steadier choice.
docs/beyond.md has the derivation, the measurements and what did not work.

Drawing in proportion to size is that of Wangni et al. (2018, arXiv 1710.09854) and of QSGD
(Alistarh et al. 2017, arXiv 1610.02132), the damped memory that of DIANA (Mishchenko et al. 2019,
arXiv 1901.09269).
"""

from dataclasses import dataclass

from aquila.core.method import Method
from aquila.core.packet import Codes
from aquila.core.quantize import lottery
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.methods.catalog import Alpha, ShareOption, WorkOption, entry
from aquila.methods.damped import DampedMemoryDevice, DampedMemoryServer


@dataclass(frozen=True)
class Lottery:
    """Draws a fresh lot for every coordinate."""

    share: float

    def __call__(self, v: Vector, key: Key) -> Codes | None:
        """Return the codes of the winners."""
        return lottery(v, self.share, key.uniform(v))


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
    device = DampedMemoryDevice(alpha, eta, Lottery(share), work)
    return Method("aquila_lots", device, DampedMemoryServer(alpha, eta))
