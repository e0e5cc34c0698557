"""What sessions hand to each other: orders, and acknowledgements that name a reply by content."""

from dataclasses import dataclass
from typing import NamedTuple

from aquila.core.envelope import checksum_of, checksum_of_order
from aquila.core.method import Turn
from aquila.core.packet import NEVER, Packet


class Ack(NamedTuple):
    """Names the last reply of a device that the server applied: its round and its checksum."""

    round: int = NEVER
    checksum: int = 0


NO_ACK = Ack()
"""The acknowledgement of a device none of whose replies has been applied."""


@dataclass(frozen=True)
class Order:
    """What the server sends a device: the model frame, the same for all, and its control frame."""

    model: bytes
    control: bytes

    @property
    def checksum(self) -> int:
        """What stands for the content of the order."""
        return checksum_of_order(self.control, self.model)


@dataclass(frozen=True)
class PendingTurn:
    """A turn that the server has not acknowledged, and what it will call it if it applies it.

    Without a frame the reply has not been packed here, without a name nowhere.
    """

    turn: Turn[object]
    ack: Ack | None = None
    frame: bytes = b""

    @property
    def reply(self) -> Packet:
        """What the device answers."""
        return self.turn.reply


def ack_of(reply: Packet, frame: bytes) -> Ack:
    """Return how a reply is acknowledged, once it has become this frame."""
    return Ack(reply.round, checksum_of(frame))
