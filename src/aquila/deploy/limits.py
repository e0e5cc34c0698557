"""Limits of the proxy: connections, buffered bytes and times, so that no sender exhausts it."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What the proxy grants to senders.

    Args:
        connections: Open connections in all.
        connections_per_address: Open connections of one address.
        header_bytes: Size of the largest header of a request.
        body_bytes: Size of the largest body. Flower sends a large frame in parts of 5 MiB.
        buffered_bytes: Bytes of bodies and answers that the proxy holds at once.
        buffered_bytes_per_sender: The part of them that one key, or one address, may use.
        header_seconds: Time for the TLS handshake, and again for the first header.
        idle_seconds: How long a connection that has carried an accepted request may be silent.
        body_seconds: Time for a body or an answer, in addition to that of its bytes.
        bytes_per_second: The slowest transfer of a body or an answer.
    """

    connections: int = 1024
    connections_per_address: int = 256
    header_bytes: int = 2**14
    body_bytes: int = 2**24
    buffered_bytes: int = 2**28
    buffered_bytes_per_sender: int = 2**25
    header_seconds: float = 10.0
    idle_seconds: float = 30.0
    body_seconds: float = 10.0
    bytes_per_second: int = 2**14

    def __post_init__(self) -> None:
        for name in ("connections", "connections_per_address"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    def transfer_seconds(self, size: int) -> float:
        """Return how long the transfer of this many bytes may take."""
        return self.body_seconds + size / self.bytes_per_second


@dataclass(eq=False)
class Slot:
    """The place of one connection. `is_trusted` protects it from being replaced."""

    address: str
    close: Callable[[], None]
    is_trusted: bool = False


class ConnectionSlots:
    """Counts connections. A new connection replaces the oldest one that is not trusted.

    A connection is trusted after an accepted request. Connections that only occupy a place
    therefore cannot keep devices out, not even if they come from the address of a device.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._slots: dict[Slot, None] = {}
        self._by_address: defaultdict[str, dict[Slot, None]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._slots)

    def open(self, address: str, close: Callable[[], None]) -> Slot | None:
        """Return a slot for a new connection, or None if all connections in its way are trusted.

        `close` is called if a later connection takes the place.
        """
        own = self._by_address.get(address, {})
        if len(own) >= self._limits.connections_per_address and not self._replace(own):
            return None
        if len(self._slots) >= self._limits.connections and not self._replace(self._slots):
            return None
        slot = Slot(address, close)
        self._slots[slot] = self._by_address[address][slot] = None
        return slot

    def release(self, slot: Slot) -> None:
        """Give a slot back. A slot may be given back twice."""
        self._slots.pop(slot, None)
        own = self._by_address[slot.address]
        own.pop(slot, None)
        if not own:
            del self._by_address[slot.address]

    def trust(self, slot: Slot) -> None:
        """Protect a connection from being replaced."""
        slot.is_trusted = True

    def _replace(self, slots: dict[Slot, None]) -> bool:
        oldest = next((slot for slot in slots if not slot.is_trusted), None)
        if oldest is None:
            return False
        self.release(oldest)
        oldest.close()
        return True


class ByteBudget:
    """Counts the bytes that the proxy holds, in all and per sender."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_sender: defaultdict[str, int] = defaultdict(int)
        self.used = 0

    def take(self, sender: str, size: int) -> bool:
        """Reserve bytes; return False, and reserve nothing, if a limit would be exceeded."""
        own = self._by_sender.get(sender, 0) + size
        if self.used + size > self._limits.buffered_bytes:
            return False
        if own > self._limits.buffered_bytes_per_sender:
            return False
        self.used += size
        self._by_sender[sender] = own
        return True

    def give_back(self, sender: str, size: int) -> None:
        """Free bytes that were reserved."""
        self.used -= size
        self._by_sender[sender] -= size
        if not self._by_sender[sender]:
            del self._by_sender[sender]
