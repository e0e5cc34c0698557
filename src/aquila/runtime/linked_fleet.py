"""The fleet of a run in one round, with the links of the round for methods that need them."""

from collections.abc import Collection
from dataclasses import dataclass

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method, check_links, needs_links
from aquila.runtime.services import Links


@dataclass(frozen=True)
class LinkedFleet:
    """A fleet, and the source of its links; None if the method does not need them."""

    fleet: Fleet
    links: Links | None

    @classmethod
    def of(cls, method: Method, fleet: Fleet, links: Links | None) -> "LinkedFleet":
        """Return the fleet of a method; ValueError if the method needs links that are missing."""
        check_links(method, links is not None)
        return cls(fleet, links if needs_links(method.server) else None)

    def in_round(self, number: int, devices: Collection[DeviceId] | None = None) -> Fleet:
        """Return the fleet in a round in which these devices may take part, by default all."""
        if self.links is None:
            return self.fleet
        chosen = self.fleet.devices if devices is None else devices
        return self.fleet.with_links(self.links(number, list(chosen)))
