"""Counts the orders that devices did not answer, to know whose model the server lost track of."""

from collections.abc import Collection, Iterable

from aquila.core.fleet import DeviceId

MAX_UNANSWERED = 2
"""After so many orders without an applied reply, a device gets a model that needs no base."""


class UnansweredOrders:
    """How many orders in a row each device left without a reply that the server applied."""

    def __init__(self, devices: int) -> None:
        self.counts = [0] * devices

    def close_round(
        self,
        ordered: Iterable[DeviceId],
        applied: Collection[DeviceId],
        failed: Collection[DeviceId],
    ) -> None:
        """Count the orders of a round. A refusal or a failure counts as too many at once."""
        for device in ordered:
            count = MAX_UNANSWERED if device in failed else self.counts[device] + 1
            self.counts[device] = 0 if device in applied else min(count, MAX_UNANSWERED)

    def are_too_many(self, device: DeviceId) -> bool:
        """Return whether a device may hold another model than the server believes."""
        return self.counts[device] >= MAX_UNANSWERED
