"""AQG: LAQ with a width per device and round (Mao et al. 2021, arXiv 2104.06023).

A device tries the widths of a preset list, by default 2, 4 and 8 bits. It uploads its innovation at
the smallest width that passes LAQ's trigger. If none does, it skips the round, and after t_bar
silent rounds it uploads at the largest width.

The trigger compares an innovation with the error of the last upload. After an upload of two bits
that error is large, so a device can stay silent until t_bar. `b_min=4` avoids this.

Augmented AQG expects that devices drop out of rounds. With `dropout` p above 0, the step of the
server counts the changes that arrive 1 / (1 - p) times, so that on average they stand for the
missing ones. The memories of device and server stay equal, because they are not multiplied.
"""

from dataclasses import dataclass
from typing import Annotated

from aquila.core.innovation import measure
from aquila.core.method import Method, Oracle, Turn, local_work, theta_of
from aquila.core.packet import Packet
from aquila.core.parameter import Bounds
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.methods.laq import DepthOption, LaqDevice, LaqState, MaxSilenceOption, XiOption
from aquila.methods.parts.factory import Alpha, WorkOption, method_factory
from aquila.methods.parts.memory import MemoryServer


@dataclass(frozen=True)
class AqgDevice:
    """A LAQ device that picks the smallest significant width of a list."""

    laq: LaqDevice
    widths: tuple[int, ...]

    def init(self, like: Vector) -> LaqState:
        """Start as a LAQ device does."""
        return self.laq.init(like)

    def step(self, state: LaqState, order: Packet, oracle: Oracle, key: Key) -> Turn[LaqState]:
        """Upload at the first width at which the innovation is significant."""
        theta = theta_of(order)
        loss, gradient = local_work(oracle, theta, self.laq.work, self.laq.alpha)
        return self.laq.answer(state, order, loss, measure(gradient, state.q), self.widths)

    def memory(self, state: LaqState) -> Vector:
        """Return q_m."""
        return self.laq.memory(state)


def doubling(b_min: int, b_max: int) -> tuple[int, ...]:
    """Return b_min, 2 b_min, 4 b_min and so on below b_max, then b_max."""
    widths = [b_min]
    while 2 * widths[-1] < b_max:
        widths.append(2 * widths[-1])
    return (*widths, b_max) if b_max > b_min else tuple(widths)


@method_factory(
    paper="Mao et al., Communication Efficient Federated Learning with Adaptive Quantization, "
    "2021, arXiv 2104.06023",
    lost_reply="The device counts as absent from the round: it rolls its memory, error and clock "
    "back. With dropout above 0, the changes that arrive stand for the lost ones.",
    reconstruction="The full text was not available. From its abstract: widths of a list, chosen "
    "by the local update, and amplified uploads under dropout. The list, the test for each width, "
    "and where uploads are amplified are ours.",
)
def aqg(
    alpha: Alpha = 0.1,
    b_min: Annotated[int, Bounds("smallest width; each next one is twice as large", 2, 31)] = 2,
    b_max: Annotated[int, Bounds("largest width", 2, 31)] = 8,
    xi: XiOption = 0.8,
    depth: DepthOption = 10,
    t_bar: MaxSilenceOption = 100,
    dropout: Annotated[float, Bounds("expected fraction of missing replies", 0, 0.95)] = 0.0,
    work: WorkOption = "gradient",
) -> Method:
    """LAQ at the smallest width that passes its trigger, from a list of widths."""
    if b_max < b_min:
        raise ValueError(f"aqg: b_max must be at least b_min, {b_min}, not {b_max}")
    laq = LaqDevice(alpha, b_max, xi, t_bar, work)
    server = MemoryServer(alpha, depth, average_drift=True, gain=1 / (1 - dropout))
    return Method("aqg", AqgDevice(laq, doubling(b_min, b_max)), server)
