"""What a record says about bad devices and privacy."""

from collections.abc import Callable

from aquila.runtime.options import RunOptions
from aquila.runtime.privacy_accountant import PrivacyAccountant
from aquila.runtime.server_session import ServerSession
from aquila.sim.records import ProtectionOutcome


class Protection:
    """Reads rejected uploads and quarantine from the server, and computes the spent privacy."""

    def __init__(
        self,
        options: RunOptions,
        devices: int,
        count_release: Callable[[int], int] | None = None,
    ) -> None:
        """Create the accountant of a run.

        Args:
            options: The options of the run.
            devices: Number of devices.
            count_release: Counts one more round and returns the count of all rounds that used data,
                given the number of closed rounds. Default: the closed rounds.
        """
        self._accountant = PrivacyAccountant(options, devices) if options.is_private else None
        self._count_release = count_release

    def outcome(self, server: ServerSession) -> ProtectionOutcome:
        """Return the fields of the record after a round has been closed."""
        epsilon = delta = None
        if self._accountant is not None:
            count = (
                server.round if self._count_release is None else self._count_release(server.round)
            )
            epsilon, delta = self._accountant.epsilon(count), self._accountant.delta
        quarantined = server.guard.health.quarantined(server.round)
        return ProtectionOutcome(
            list(server.guard.rejected) or None, list(quarantined) or None, epsilon, delta
        )
