"""Decides which devices and uploads count in a round: failures, quarantine, limits and privacy."""

from collections.abc import Collection, Mapping
from typing import Any

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method, has_memory
from aquila.core.packet import Packet
from aquila.core.random import Key, Purpose
from aquila.core.vector import Vector
from aquila.runtime.device_history import DeviceHistories, require_histories
from aquila.runtime.fleet_health import FleetHealth, NormKind, reason_of
from aquila.runtime.norm_limit import check_clipping, clip_to_median, upload_norm
from aquila.runtime.options import RunOptions
from aquila.runtime.privacy import GaussianNoise, check_privacy, release_mean
from aquila.runtime.restart_limit import RestartTooEarlyError
from aquila.runtime.selection import Selector
from aquila.runtime.server_state import OpenRound, ReceivedReply
from aquila.runtime.services import Services

Received = Mapping[DeviceId, ReceivedReply]

BITS_PER_VALUE = 32
"""Fewest bits per coordinate of a vector that is not quantized."""

MAX_REPLACEMENT_DRAWS = 3
"""How often a round draws devices in place of those that failed."""


class RoundGuard:
    """Keeps the health of the fleet, and screens the replies of each round.

    With noise from the server, no device is put into quarantine and no upload is rejected. Both
    would make the sample of a round depend on private data. Clipping bounds the uploads instead.

    Attributes:
        health: Failures, quarantine and norms of the devices.
        failed: Why devices failed in the open round.
        rejected: Devices whose uploads the last closed round rejected.
    """

    def __init__(
        self, method: Method, fleet: Fleet, seed: int, options: RunOptions, services: Services
    ) -> None:
        check_privacy(method, fleet, options)
        if options.upload_limit == "median":
            check_clipping(method.server)
        self.health = FleetHealth.of(len(fleet.devices))
        self.failed: dict[DeviceId, str] = {}
        self.rejected: tuple[DeviceId, ...] = ()
        self._seed, self._secret_key = seed, services.secret_key
        self._noise = (
            GaussianNoise.of(options)
            if options.is_private and options.dp_noise_by == "server"
            else None
        )
        self._limit = "none" if self._noise is not None else options.upload_limit
        self._has_memory = has_memory(method.server)
        # innovations of a device that was away are as large as at the start
        self._decays = not self._has_memory

    def excluded(
        self,
        round_number: int,
        offered: Collection[DeviceId],
        reachable: Collection[DeviceId] | None = None,
    ) -> frozenset[DeviceId]:
        """Return the devices that may not be drawn.

        If no other device is left, those in quarantine may take part again.
        """
        if self._noise is not None:
            return frozenset()
        excluded = frozenset(self.health.quarantined(round_number)).union(self.failed)
        left = [d for d in offered if reachable is None or d in reachable]
        return excluded if any(device not in excluded for device in left) else frozenset()

    def replacements(
        self,
        opened: OpenRound,
        selector: Selector,
        round_number: int,
        reachable: Collection[DeviceId] | None,
    ) -> tuple[DeviceId, ...]:
        """Draw devices in place of those that failed and have not been replaced yet.

        Args:
            opened: The open round.
            selector: Draws the devices.
            round_number: Number of the round.
            reachable: The connected devices, None if all are.
        """
        wanted = sum(device in opened.orders for device in self.failed) - opened.replaced
        spare = self._spare(opened, round_number, reachable)
        if wanted <= 0 or not spare or opened.draws == MAX_REPLACEMENT_DRAWS:
            return ()
        return selector.replacements(spare, wanted, round_number, opened.draws + 1)

    def fatal_reason(
        self, opened: OpenRound, round_number: int, reachable: Collection[DeviceId] | None
    ) -> str | None:
        """Return why the first device failed if every device failed and none is left, else None."""
        tried = [d for d in opened.orders if reachable is None or d in reachable]
        if self._spare(opened, round_number, reachable):
            return None
        return reason_of(self.failed, tried)

    def _spare(
        self, opened: OpenRound, round_number: int, reachable: Collection[DeviceId] | None
    ) -> list[DeviceId]:
        """Return the devices that can still join a round."""
        if self._noise is not None:
            return []
        out = {*self.health.quarantined(round_number), *self.failed, *opened.orders}
        return [d for d in opened.offered if d not in out and (reachable is None or d in reachable)]

    def check_restart(
        self, histories: DeviceHistories | None, device: DeviceId, round_number: int
    ) -> None:
        """Raise WireError if a device cannot restart. Until it can, it gets no orders."""
        try:
            require_histories(histories, device).check_restart(device, round_number)
        except RestartTooEarlyError as error:
            self.health = self.health.with_wait(device, error.accepted)
            raise

    def norm_of(self, reply: Packet) -> float:
        """Return the norm of an upload, 0 if no limit needs it."""
        return 0.0 if self._limit == "none" else upload_norm(reply)

    def screen(self, received: Received) -> dict[DeviceId, ReceivedReply]:
        """Return the replies within the limit of the fleet; the others count as failures."""
        excessive: dict[DeviceId, str] = {}
        for kind, norms in self._norms_by_kind(received).items():
            self.health = self.health.with_norms(norms, self._decays, kind)
            excessive |= self.health.excessive(norms, kind)
        self.rejected = tuple(sorted(excessive))
        self.failed |= excessive
        return {device: r for device, r in received.items() if device not in excessive}

    def _norms_by_kind(self, received: Received) -> dict[NormKind, dict[DeviceId, float]]:
        """Return the norms of the uploads that are compared with each other.

        A method may send whole vectors in some rounds and small differences in others. With memory,
        all are of one kind, because the difference of a device that was away is large.
        """
        if self._limit == "none":
            return {}
        by_kind: dict[NormKind, dict[DeviceId, float]] = {"norms": {}, "coded_norms": {}}
        for device, entry in received.items():
            vector = entry.reply.vector
            if vector is not None:
                is_coded = not self._has_memory and vector.bits < BITS_PER_VALUE
                by_kind["coded_norms" if is_coded else "norms"][device] = entry.norm
        return by_kind

    def release(
        self, applied: Received, orders: Collection[DeviceId], round_number: int, theta: Vector
    ) -> dict[DeviceId, Packet]:
        """Return the replies as the method gets them: as sent, clipped, or as one noisy mean."""
        replies = {device: entry.reply for device, entry in applied.items()}
        if self._limit == "median":
            return clip_to_median(replies, {d: entry.norm for d, entry in applied.items()})
        if self._noise is None:
            return replies
        key = self._secret_key(Key((self._seed, round_number, Purpose.NOISE)))
        return release_mean(self._noise, replies, orders, theta, key)

    def close(self, round_number: int, succeeded: Collection[DeviceId]) -> None:
        """Update the quarantine after a round."""
        failed: Mapping[DeviceId, Any] = {} if self._noise is not None else self.failed
        self.health = self.health.after_round(round_number, failed, succeeded)
        self.failed = {}
