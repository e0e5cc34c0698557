"""Part: the server gives each device a number of bits that fits its link.

The order carries the scalar `bits`. The device quantizes its gradient with that many bits per
coordinate; 32 bits are float32. Without a memory, errors of nearest rounding do not average out. At
two bits they stop the training, so most methods use stochastic rounding.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median_high
from typing import Annotated, Literal

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.link import LinkState
from aquila.core.method import Method, Oracle, Scalars, Turn, Work, local_work, theta_of
from aquila.core.packet import MAX_BITS, Codes, Dense, Packet
from aquila.core.parameter import Bounds
from aquila.core.quantize import levels_for_bits, midrise_or_dense, stochastic_round
from aquila.core.random import Key
from aquila.core.vector import Vector, error_ratio
from aquila.methods.parts.mean import MeanServer, NoState

MIN_BITS = 2
"""Smallest bits of stochastic rounding: a sign and a zero."""
MEDIAN_BITS = 8
"""Without an upload time, the median device gets this many bits per coordinate."""

UploadTime = Annotated[
    float,
    Bounds(f"seconds for an upload; 0: {MEDIAN_BITS} bits per coordinate for the median device", 0),
]

BitsRule = Callable[[Fleet], Mapping[DeviceId, int]]
"""Fleet with links -> bits per coordinate of each device of the round."""


@dataclass(frozen=True)
class LinkBitsDevice:
    """Sends its gradient with the bits of the order.

    Args:
        alpha: Step size of local steps.
        work: What the device computes.
        rounding: `stochastic` rounds without bias, as QSGD does, with two bits or more. `nearest`
            is AQUILA's mid-rise grid.
    """

    alpha: float
    work: Work
    rounding: Literal["stochastic", "nearest"] = "stochastic"

    def init(self, like: Vector) -> NoState:
        """Start without state."""
        return NoState()

    def step(self, state: NoState, order: Packet, oracle: Oracle, key: Key) -> Turn[NoState]:
        """Answer with the quantized gradient."""
        loss, gradient = local_work(oracle, theta_of(order), self.work, self.alpha)
        upload = self._quantize(gradient, int(order.scalar("bits")), key)
        notes = {"loss": loss}
        if upload is not None:
            notes["error_ratio"] = error_ratio(gradient, upload.decode())
        return Turn(state, Packet(order.round, upload), notes)

    def _quantize(self, gradient: Vector, bits: int, key: Key) -> Codes | Dense | None:
        if self.rounding == "nearest" or bits >= MAX_BITS:
            return midrise_or_dense(gradient, bits)
        return stochastic_round(gradient, levels_for_bits(bits), key)


@dataclass(frozen=True)
class LinkBitsServer:
    """Adds bits to the orders, by a rule of the links. The step is that of a `MeanServer`."""

    inner: MeanServer
    rule: BitsRule

    @property
    def needs_links(self) -> bool:
        """True: the rule reads the links."""
        return True

    def init(self, theta: Vector, fleet: Fleet) -> NoState:
        """Start without state."""
        return self.inner.init(theta, fleet)

    def orders(
        self, state: NoState, fleet: Fleet, round_number: int, key: Key
    ) -> tuple[NoState, dict[DeviceId, Scalars]]:
        """Send the model and its bits to every device of the round."""
        return state, bit_orders(self.rule(fleet))

    def update(
        self, state: NoState, fleet: Fleet, replies: Mapping[DeviceId, Packet]
    ) -> tuple[NoState, Vector]:
        """Step along the average of the replies."""
        return self.inner.update(state, fleet, replies)


def link_bits_method(name: str, alpha: float, work: Work, rule: BitsRule) -> Method:
    """Return the method that rounds gradients stochastically, with bits by a rule of the links."""
    return Method(name, LinkBitsDevice(alpha, work), LinkBitsServer(MeanServer(alpha), rule))


def bit_orders(bits: Mapping[DeviceId, int]) -> dict[DeviceId, Scalars]:
    """Return the orders with these bits. Devices with the same bits share one mapping."""
    shared = {count: {"bits": float(count)} for count in set(bits.values())}
    return {device: shared[count] for device, count in bits.items()}


def links_of(fleet: Fleet) -> Mapping[DeviceId, LinkState]:
    """Return the links of the round."""
    if fleet.links is None:
        raise ValueError("this method reads the links of the devices, but fleet.links is None")
    return fleet.links


def upload_rates(fleet: Fleet) -> dict[DeviceId, float]:
    """Return the mean rate of each device while it uploads, in bit/s."""
    return {d: state.uplink_rate * state.link.duty_cycle for d, state in links_of(fleet).items()}


def affordable_bits(fleet: Fleet, upload_time: float) -> dict[DeviceId, float]:
    """Return how many bits per coordinate each device can upload in a time, r_m T / d_m.

    A time of 0 is that in which the median device uploads 8 bits per coordinate.
    """
    rates = upload_rates(fleet)
    per_bit = {d: fleet.dimension_of(d) / rate for d, rate in rates.items() if rate > 0}
    if not upload_time and per_bit:
        upload_time = MEDIAN_BITS * median_high(per_bit.values())
    return {d: upload_time / per_bit.get(d, math.inf) for d in rates}


@dataclass(frozen=True)
class WidthWithinTime:
    """The largest width that a device can upload in a time; the smallest if none fits.

    Args:
        upload_time: Time of an upload, as for `affordable_bits`.
        widths: Bits per coordinate to choose from, smallest first.
    """

    upload_time: float
    widths: tuple[int, ...]

    def __call__(self, fleet: Fleet) -> Mapping[DeviceId, int]:
        """Return the bits of each device of the round."""
        bits = affordable_bits(fleet, self.upload_time)
        fitting = {d: [w for w in self.widths if w <= b] for d, b in bits.items()}
        return {d: widths[-1] if widths else self.widths[0] for d, widths in fitting.items()}
