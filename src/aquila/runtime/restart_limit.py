"""Limit on devices that restart from their initial state again and again.

Every restart makes the server read an archive and the device upload a whole gradient. A machine
that loses its disk restarts once. A device without a disk, or two machines with one device number,
restart in every round, so the server accepts their restarts less and less often.
"""

from dataclasses import dataclass
from typing import NamedTuple

from aquila.core.fleet import DeviceId
from aquila.core.packet import NEVER, WireError


class RestartTooEarlyError(WireError):
    """A device must wait before it can restart; `accepted` is the first round in which it can."""

    def __init__(self, text: str, accepted: int) -> None:
        super().__init__(text)
        self.accepted = accepted


class Restarts(NamedTuple):
    """Restarts of a device in close succession: how many, and the round of the last one."""

    streak: int = 0
    last_round: int = NEVER


@dataclass(frozen=True)
class RestartLimit:
    """When the server accepts the next restart of a device.

    Args:
        free: Restarts that may follow each other in every round.
        longest_wait: Most rounds between two accepted restarts. After as many rounds without a
            restart, earlier restarts no longer count.
    """

    free: int = 3
    longest_wait: int = 64

    def check(self, device: DeviceId, restarts: Restarts, round_number: int) -> None:
        """Raise RestartTooEarlyError if a device must wait before it can restart."""
        accepted = restarts.last_round + self._wait(restarts)
        if round_number < accepted:
            raise RestartTooEarlyError(
                f"device {device} has restarted from its initial state {restarts.streak} times in "
                f"close succession; the server accepts its next restart in round {accepted}",
                accepted,
            )

    def after(self, restarts: Restarts, round_number: int) -> Restarts:
        """Return the restarts of a device after another one."""
        quiet = restarts.last_round + self._wait(restarts) + self.longest_wait
        is_new = restarts.streak == 0 or round_number >= quiet
        return Restarts(1 if is_new else restarts.streak + 1, round_number)

    def _wait(self, restarts: Restarts) -> int:
        """Return the rounds from the last restart to the next one, which double each time."""
        excess = max(0, restarts.streak - self.free + 1)
        return int(min(2 ** min(excess, 30), self.longest_wait))
