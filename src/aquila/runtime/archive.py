"""Archives: each device's replies as they arrived, so that a device can be taken out of a sum.

From the average of the devices' memories alone nobody can take one memory out. The frames that
built it can: they are bytes on disk, no vectors in memory, and are read only when a device starts
anew. Frames carry their round, so an archive that is ahead of a server's checkpoint is cut back.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from aquila.core.envelope import Flag, checksum_of, flags_of, parse, round_of
from aquila.core.fleet import DeviceId
from aquila.core.packet import WireError
from aquila.runtime.files import sync_folder
from aquila.runtime.messages import Ack

LENGTH_BYTES = 8
"""Bytes before each frame of a file: how long it is."""

PREFIX_BYTES = 16
"""Bytes of a frame that hold its flags and its round."""


class Archive(Protocol):
    """Keeps the replies that a server has applied, in the order in which it did."""

    def append(self, device: DeviceId, frame: bytes) -> None:
        """Keep one more reply; it is durable when this returns."""
        ...

    def replies(self, device: DeviceId) -> list[bytes]:
        """Return all that is kept of a device."""
        ...

    def rewind(self, round_number: int) -> None:
        """Drop the replies to this round and to all after it."""
        ...


class MemoryArchive:
    """An archive that is gone with the process."""

    def __init__(self) -> None:
        self._frames: dict[DeviceId, list[bytes]] = {}

    def append(self, device: DeviceId, frame: bytes) -> None:
        """Keep one more reply."""
        self._frames.setdefault(device, []).append(bytes(frame))

    def replies(self, device: DeviceId) -> list[bytes]:
        """Return all that is kept of a device."""
        return list(self._frames.get(device, ()))

    def rewind(self, round_number: int) -> None:
        """Drop the replies to this round and to all after it."""
        for device, frames in self._frames.items():
            self._frames[device] = [frame for frame in frames if round_of(frame) < round_number]


class FolderArchive:
    """One file a device that is only ever appended to; readable by its owner alone.

    What a crash left half written is of a round that no checkpoint has closed: it is skipped when
    read and cut off by `rewind`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def append(self, device: DeviceId, frame: bytes) -> None:
        """Keep one more reply; it is on the disk when this returns."""
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
        """Return all that is kept of a device."""
        path = self._path(device)
        if not path.exists():
            return []
        with path.open("rb") as file:
            return [_read(file, place, length) for place, length, _ in _scan_frames(file)]

    def rewind(self, round_number: int) -> None:
        """Drop the replies to this round and to all after it, and whatever is half written."""
        for path in self._folder.glob("*.frames"):
            with path.open("r+b") as file:
                kept = [
                    place + length
                    for place, length, frame_round in _scan_frames(file)
                    if frame_round < round_number
                ]
                end = kept[-1] if kept else 0
                if end < os.fstat(file.fileno()).st_size:
                    file.truncate(end)
                    os.fsync(file.fileno())

    def _path(self, device: DeviceId) -> Path:
        return self._folder / f"{device}.frames"


def since_last_fresh(frames: Iterable[bytes]) -> list[bytes]:
    """Return the replies from the last one on that starts from the initial state."""
    kept: list[bytes] = []
    for frame in frames:
        if flags_of(frame) & Flag.FRESH:
            kept.clear()
        kept.append(frame)
    return kept


def reply_history(archive: Archive, device: DeviceId, ack: Ack, round_number: int) -> list[bytes]:
    """Return the replies behind what a server in this round holds of a device.

    WireError if not all are there: what a file may lack is its end, and then its last reply is not
    the one that was applied last.
    """
    frames = since_last_fresh(f for f in archive.replies(device) if round_of(f) < round_number)
    if not frames or (round_of(frames[-1]), checksum_of(frames[-1])) != ack:
        raise WireError(
            f"device {device} starts anew, but the archive does not end with its reply to round "
            f"{ack.round}, so what it sent before cannot be taken back"
        )
    for frame in frames:
        parse(frame)
    return frames


def _scan_frames(file: BinaryIO) -> Iterator[tuple[int, int, int]]:
    """Yield place, length and round of every frame that is whole."""
    size, at = os.fstat(file.fileno()).st_size, 0
    while at + LENGTH_BYTES + PREFIX_BYTES <= size:
        file.seek(at)
        start = file.read(LENGTH_BYTES + PREFIX_BYTES)
        length, place = int.from_bytes(start[:LENGTH_BYTES], "little"), at + LENGTH_BYTES
        if (
            length < PREFIX_BYTES
            or place + length > size
            or not start[LENGTH_BYTES:].startswith(b"AQLA")
        ):
            return
        yield place, length, round_of(start[LENGTH_BYTES:])
        at = place + length


def _read(file: BinaryIO, place: int, length: int) -> bytes:
    file.seek(place)
    return file.read(length)
