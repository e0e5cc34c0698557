"""The simulated link between devices and server."""

from dataclasses import dataclass

from aquila.core.random import Key


@dataclass(frozen=True)
class Link:
    """A link that loses each message with a fixed probability, independently of all others."""

    uplink_loss: float = 0.0
    downlink_loss: float = 0.0

    def __post_init__(self) -> None:
        for name in ("uplink_loss", "downlink_loss"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, not {getattr(self, name)}")

    def order_arrives(self, key: Key) -> bool:
        """Whether an order reaches its device."""
        return not self.downlink_loss or not key.child(0).bernoulli(self.downlink_loss)

    def reply_arrives(self, key: Key) -> bool:
        """Whether a reply reaches the server."""
        return not self.uplink_loss or not key.child(1).bernoulli(self.uplink_loss)
