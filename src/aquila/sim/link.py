"""The simulated link between devices and server."""

from dataclasses import dataclass

from aquila.core.random import Key


@dataclass(frozen=True)
class Link:
    """A link that loses each message independently with a fixed probability."""

    uplink_loss: float = 0.0
    downlink_loss: float = 0.0

    def order_arrives(self, key: Key) -> bool:
        """Whether an order reaches its device."""
        return not self.downlink_loss or not key.child(0).bernoulli(self.downlink_loss)

    def reply_arrives(self, key: Key) -> bool:
        """Whether a reply reaches the server."""
        return not self.uplink_loss or not key.child(1).bernoulli(self.uplink_loss)
