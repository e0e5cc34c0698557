"""What each device has contributed to the server's memory, kept in an archive in bounded space."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from logging import getLogger
from typing import Any

import torch

from aquila.core.fleet import DeviceId
from aquila.core.method import ServerHalf, server_memory
from aquila.core.packet import WireError
from aquila.core.vector import Vector
from aquila.core.wire import unpack
from aquila.runtime.reply_archive import LOST_PART, NO_PART, Position, ReplyArchive
from aquila.runtime.reply_reader import ReplyReader
from aquila.runtime.restart_limit import RestartLimit, Restarts
from aquila.runtime.server_state import ReceivedReply

MIN_FOLD_BYTES = 2**20
"""A part of a small model is folded only above this size, because each fold writes a file."""

_LOG = getLogger("aquila")


class DeviceHistories:
    """Appends replies to an archive and subtracts the history of a device that restarts.

    When the frames of a part take more bytes than the model, the part is folded: a new part begins
    with the sum of the contributions, in the dtype of the model. The rounding is that of a device,
    which also adds its updates in this dtype.

    Args:
        archive: Where parts are stored.
        half: The method's server half, which has a memory.
        replies: Reads the frames of the archive.
        dtype: The dtype of the model.
    """

    def __init__(
        self, archive: ReplyArchive, half: ServerHalf[Any], replies: ReplyReader, dtype: torch.dtype
    ) -> None:
        self.archive = archive
        self.limit = RestartLimit()
        self.min_fold_bytes = MIN_FOLD_BYTES
        self._memory = server_memory(half)
        self._replies = replies
        self._dtype = dtype
        self.restore((), ())

    def restore(self, positions: Sequence[Position], restarts: Sequence[Restarts]) -> None:
        """Continue from saved positions and restarts; without any, all devices are new."""
        devices = len(self._replies.fleet.devices)
        self.positions = tuple(positions) or (Position(),) * devices
        self.restarts = tuple(restarts) or (Restarts(),) * devices
        self._may_be_ahead = True

    def check_restart(self, device: DeviceId, round_number: int) -> None:
        """Raise WireError if the server cannot accept a restart of a device in this round."""
        self.limit.check(device, self.restarts[device], round_number)
        for _ in self._entries(device, self.positions[device]):
            pass

    def subtract(self, state: Any, device: DeviceId) -> Any:
        """Return the server half's state without what a device has contributed.

        Raises WireError if the archive is incomplete or damaged. One entry at a time is in memory.
        """
        contributions = self._contributions(device, self.positions[device])
        return self._memory.forget(state, self._replies.fleet, device, contributions)

    def append(
        self, applied: Mapping[DeviceId, ReceivedReply], restarted: set[DeviceId], round_number: int
    ) -> None:
        """Archive the replies of a round. The server may acknowledge them only afterwards."""
        positions, restarts = list(self.positions), list(self.restarts)
        if self._may_be_ahead:
            positions = [self._truncate(device, p) for device, p in enumerate(positions)]
        self._may_be_ahead = True
        for device, entry in applied.items():
            if device in restarted:
                restarts[device] = self.limit.after(restarts[device], round_number)
            is_start = device in restarted or positions[device].part == NO_PART
            positions[device] = self._append(
                device, positions[device], entry.read_frame(), is_start
            )
        self.archive.sync()
        self.positions, self.restarts = tuple(positions), tuple(restarts)
        self._may_be_ahead = False

    def incomplete_devices(self) -> list[DeviceId]:
        """Return the devices whose archive lacks entries. Damaged entries are not looked for."""
        return [
            d for d, position in enumerate(self.positions) if not self._has_entries(d, position)
        ]

    def _append(self, device: DeviceId, position: Position, frame: bytes, start: bool) -> Position:
        if start:
            position = self._begin(device, position, b"")
        if position.part == LOST_PART:
            return position
        try:
            size = self.archive.append(device, position.part, frame)
        except FileNotFoundError:
            return self._lost(device)
        position = position.after(frame)
        return self._fold(device, position) if size > self._fold_bytes(device) else position

    def _begin(self, device: DeviceId, position: Position, entry: bytes) -> Position:
        """Begin the next part with what the device has contributed so far."""
        part = max(position.part, NO_PART) + 1
        self.archive.begin(device, part, entry)
        return Position(part).after(entry)

    def _fold(self, device: DeviceId, position: Position) -> Position:
        """Replace the entries of a part by their sum."""
        replies = self._replies
        total = torch.zeros(
            replies.fleet.dimension_of(device), dtype=torch.float64, device=replies.torch_device
        )
        try:
            for contribution in self._contributions(device, position):
                total.add_(contribution)
        except WireError:
            return self._lost(device)
        return self._begin(device, position, total.to(self._dtype).cpu().numpy().tobytes())

    def _fold_bytes(self, device: DeviceId) -> float:
        """Return the size above which a part is folded.

        The sizes differ between devices, so that a fleet in step does not fold in the same round.
        """
        memory = self._memory_bytes(device)
        return memory + max(memory, self.min_fold_bytes) * (1 - device % 16 / 32)

    def _memory_bytes(self, device: DeviceId) -> int:
        return self._replies.fleet.dimension_of(device) * self._dtype.itemsize

    def _truncate(self, device: DeviceId, position: Position) -> Position:
        """Drop the entries that a crash or a rollback has left ahead of the server's state."""
        if position.part in (NO_PART, LOST_PART):
            return position
        if not self._has_entries(device, position):
            return self._lost(device)
        self.archive.truncate(device, position.part, position.entries)
        return position

    def _has_entries(self, device: DeviceId, position: Position) -> bool:
        if position.part in (NO_PART, LOST_PART):
            return position.part == NO_PART
        return self.archive.has_entries(device, position.part, position.entries)

    def _lost(self, device: DeviceId) -> Position:
        _LOG.warning(
            "the archive of device %d is incomplete or damaged; from now on the server refuses "
            "restarts of this device", device,
        )  # fmt: skip
        return Position(LOST_PART)

    def _contributions(self, device: DeviceId, position: Position) -> Iterator[Vector]:
        """Yield the contributions of a device since it started; WireError at any damage."""
        entries = self._entries(device, position)
        memory = next(entries, b"")
        if memory:
            if len(memory) != self._memory_bytes(device):
                raise _incomplete(device)
            vector = torch.frombuffer(bytearray(memory), dtype=self._dtype)
            yield vector.to(self._replies.torch_device)
        for frame in entries:
            try:
                reply = self._replies.read(device, frame, unpack)
            except WireError:
                raise _incomplete(device) from None
            contribution = self._memory.contribution(reply)
            if contribution is not None:
                yield contribution

    def _entries(self, device: DeviceId, position: Position) -> Iterator[bytes]:
        """Yield the entries of a position; WireError at the end unless they are the right ones."""
        reached = Position(position.part)
        for entry in islice(self.archive.entries(device, position.part), position.entries):
            reached = reached.after(entry)
            yield entry
        if reached != position or position.part == LOST_PART:
            raise _incomplete(device)


def _incomplete(device: DeviceId) -> WireError:
    return WireError(
        f"device {device} restarts from its initial state, but the archive of its earlier replies "
        "is incomplete or damaged, so the server cannot subtract them"
    )


def archive_state(
    histories: DeviceHistories | None,
) -> tuple[tuple[Position, ...], tuple[Restarts, ...]]:
    """Return the positions and restarts to save, none without an archive."""
    return ((), ()) if histories is None else (histories.positions, histories.restarts)


def require_histories(histories: DeviceHistories | None, device: DeviceId) -> DeviceHistories:
    """Return the histories, or raise WireError if a device restarts and there are none."""
    if histories is None:
        raise WireError(
            f"device {device} restarts from its initial state, but without an archive the "
            "server cannot subtract its earlier replies"
        )
    return histories
