"""Traffic: what crossed the wire, counted by `len()` of frames and nothing else.

Beside it stands `paper_bits`, the papers' own count (bits a coordinate times coordinates, no
headers, no downlink), for comparison with their tables only.
"""

from dataclasses import dataclass

from aquila.core.envelope import Kind, kind_of, parse
from aquila.core.fleet import DeviceId


@dataclass(frozen=True)
class Cost:
    """Bytes of the vectors, bytes of everything around them, and the papers' count."""

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
    """Measure a frame that this process sealed or has already checked."""
    if kind_of(frame) == Kind.EMPTY:
        return Cost(len(frame))
    parsed = parse(frame, trusted=True)
    return Cost(len(frame) - parsed.body_bytes, parsed.body_bytes, parsed.paper_bits)


class Traffic:
    """Costs of one round, by device and direction; frames that got lost on the way count too."""

    def __init__(self) -> None:
        self.uplink: dict[DeviceId, Cost] = {}
        self.downlink: dict[DeviceId, Cost] = {}

    def add_uplink(self, device: DeviceId, cost: Cost) -> None:
        """Count a frame that a device sent."""
        _add(self.uplink, device, cost)

    def add_downlink(self, device: DeviceId, cost: Cost) -> None:
        """Count a frame that was sent to a device."""
        _add(self.downlink, device, cost)


def _add(costs: dict[DeviceId, Cost], device: DeviceId, cost: Cost) -> None:
    costs[device] = costs[device] + cost if device in costs else cost


def total_cost(costs: dict[DeviceId, Cost]) -> Cost:
    """Add up the costs of all devices."""
    return sum(costs.values(), Cost())
