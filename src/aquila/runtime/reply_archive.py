"""Archives of applied replies, so that the server can subtract one device from an average.

The average of the devices' memories does not determine a single memory. The frames that built it
do. They are bytes on disk, and the server reads them only when a device restarts from its initial
state. A frame carries its round, so an archive ahead of a server's checkpoint can be truncated.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from aquila.core.envelope import MIN_BYTES, Flag, checksum_of, flags_of, is_frame, parse, round_of
from aquila.core.fleet import DeviceId
from aquila.core.packet import WireError
from aquila.runtime.files import sync_folder
from aquila.runtime.messages import Ack

LENGTH_BYTES = 8
"""Bytes of the length that precedes each frame in a file."""


class ReplyArchive(Protocol):
    """Stores the replies that a server applied, in that order."""

    def append(self, device: DeviceId, frame: bytes) -> None:
        """Store a reply durably."""
        ...

    def replies(self, device: DeviceId) -> list[bytes]:
        """Return all stored replies of a device."""
        ...

    def rewind(self, round_number: int) -> None:
        """Drop the replies to this round and to all later rounds."""
        ...


class FolderArchive:
    """One append-only file per device, readable only by its owner.

    A crash may leave an incomplete frame, but only in a round without a checkpoint. Reading skips
    such a frame and `rewind` removes it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def append(self, device: DeviceId, frame: bytes) -> None:
        """Store a reply and flush it to disk."""
        path = self._path(device)
        new = not path.exists()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(len(frame).to_bytes(LENGTH_BYTES, "little") + frame)
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync_folder(self._folder)

    def replies(self, device: DeviceId) -> list[bytes]:
        """Return all stored replies of a device."""
        path = self._path(device)
        if not path.exists():
            return []
        with path.open("rb") as file:
            return [_read(file, offset, length) for offset, length, _ in _scan_frames(file)]

    def rewind(self, round_number: int) -> None:
        """Drop the replies to this round and to all later rounds, and incomplete frames."""
        for path in self._folder.glob("*.frames"):
            with path.open("r+b") as file:
                kept = [
                    offset + length
                    for offset, length, frame_round in _scan_frames(file)
                    if frame_round < round_number
                ]
                end = kept[-1] if kept else 0
                if end < os.fstat(file.fileno()).st_size:
                    file.truncate(end)
                    os.fsync(file.fileno())

    def _path(self, device: DeviceId) -> Path:
        return self._folder / f"{device}.frames"


def since_last_fresh(frames: Iterable[bytes]) -> list[bytes]:
    """Return the replies since the device last started from its initial state."""
    kept: list[bytes] = []
    for frame in frames:
        if flags_of(frame) & Flag.FRESH:
            kept.clear()
        kept.append(frame)
    return kept


def reply_history(
    archive: ReplyArchive, device: DeviceId, ack: Ack, round_number: int
) -> list[bytes]:
    """Return the replies that built the memory of a device at the start of a round.

    Raises WireError if replies are missing. An archive can only lack its end. Its last reply is
    then not the one that the server acknowledges.
    """
    frames = since_last_fresh(f for f in archive.replies(device) if round_of(f) < round_number)
    if not frames or (round_of(frames[-1]), checksum_of(frames[-1])) != ack:
        raise WireError(
            f"device {device} restarts from its initial state, but the archive does not end with "
            f"its reply to round {ack.round}, so the server cannot subtract its earlier replies"
        )
    for frame in frames:
        parse(frame)
    return frames


def _scan_frames(file: BinaryIO) -> Iterator[tuple[int, int, int]]:
    """Yield offset, length and round of every complete frame."""
    size, position = os.fstat(file.fileno()).st_size, 0
    while position + LENGTH_BYTES + MIN_BYTES <= size:
        file.seek(position)
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        head, offset = file.read(MIN_BYTES), position + LENGTH_BYTES
        if length < MIN_BYTES or offset + length > size or not is_frame(head):
            return
        yield offset, length, round_of(head)
        position = offset + length


def _read(file: BinaryIO, offset: int, length: int) -> bytes:
    file.seek(offset)
    return file.read(length)
