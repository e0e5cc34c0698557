"""Byte counts of a round: `len()` of every frame that was sent.

`paper_bits` is the count that papers use: bits per coordinate times coordinates, without headers
and without the downlink. It only serves comparisons with their tables.
"""

from dataclasses import dataclass

from aquila.core.envelope import Kind, kind_of, parse
from aquila.core.fleet import DeviceId


@dataclass(frozen=True)
class Cost:
    """Bytes of vectors, bytes of headers and scalars, and the papers' count of bits."""

    header_bytes: int = 0
    body_bytes: int = 0
    paper_bits: int = 0

    @property
    def bytes(self) -> int:
        """All bytes."""
        return self.header_bytes + self.body_bytes

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.header_bytes + other.header_bytes,
            self.body_bytes + other.body_bytes,
            self.paper_bits + other.paper_bits,
        )


def cost_of(frame: bytes) -> Cost:
    """Return the cost of a frame that this process has packed or already checked."""
    if kind_of(frame) == Kind.EMPTY:
        return Cost(len(frame))
    parsed = parse(frame, trusted=True)
    return Cost(len(frame) - parsed.body_bytes, parsed.body_bytes, parsed.paper_bits)


class Traffic:
    """Costs of one round per device and direction. Lost frames count too."""

    def __init__(self) -> None:
        self.uplink: dict[DeviceId, Cost] = {}
        self.downlink: dict[DeviceId, Cost] = {}

    def add_uplink(self, device: DeviceId, cost: Cost) -> None:
        """Count a frame from a device."""
        _add(self.uplink, device, cost)

    def add_downlink(self, device: DeviceId, cost: Cost) -> None:
        """Count a frame to a device."""
        _add(self.downlink, device, cost)


def _add(costs: dict[DeviceId, Cost], device: DeviceId, cost: Cost) -> None:
    costs[device] = costs[device] + cost if device in costs else cost


def total_cost(costs: dict[DeviceId, Cost]) -> Cost:
    """Return the sum over all devices."""
    return Cost(
        sum([cost.header_bytes for cost in costs.values()]),
        sum([cost.body_bytes for cost in costs.values()]),
        sum([cost.paper_bits for cost in costs.values()]),
    )
