"""Messages between sessions: orders, and acknowledgements that name a reply by its content."""

from dataclasses import dataclass, field
from typing import NamedTuple

from aquila.core.envelope import checksum_of, checksum_of_order
from aquila.core.method import LR_FACTOR, Turn
from aquila.core.packet import NEVER, Packet


class Ack(NamedTuple):
    """Round and checksum of the last reply of a device that the server applied."""

    round: int = NEVER
    checksum: int = 0


NO_ACK = Ack()
"""Acknowledgement for a device of which the server has applied no reply."""


@dataclass(frozen=True)
class Order:
    """Message from the server to a device.

    Many devices share the same model frame. The control frame holds scalars and the
    acknowledgement of one device. A reply uses the checksum of both frames to name its order.
    """

    model: bytes
    control: bytes
    checksum: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "checksum", checksum_of_order(self.control, self.model))


@dataclass(frozen=True)
class PendingTurn:
    """A turn that the server has not acknowledged yet.

    `ack` is how the server would acknowledge it, None until the reply is packed. `frame` is the
    packed reply, empty if the session does not keep it.
    """

    turn: Turn[object]
    ack: Ack | None = None
    frame: bytes = b""

    @property
    def reply(self) -> Packet:
        """The reply of the turn."""
        return self.turn.reply


def rate_scalars(lr_factor: float) -> dict[str, float]:
    """Return the scalars of an order whose local rate has this factor."""
    return {} if lr_factor == 1 else {LR_FACTOR: lr_factor}


def ack_of(reply: Packet, frame: bytes) -> Ack:
    """Return the acknowledgement of a reply that was packed as this frame."""
    return Ack(reply.round, checksum_of(frame))
