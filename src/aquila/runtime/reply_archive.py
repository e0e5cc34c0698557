"""Archives of applied replies, so that the server can subtract one device from an average.

The average of the devices' memories does not determine a single memory. The frames that built it
do. They are bytes on disk, and the server reads them only when a device restarts from its initial
state.

The history of a device is stored in parts. A part is a list of entries: first what the device had
contributed when the part began, then the frames of its later replies. The server's state names the
part of each device, its number of entries and a running checksum over them. Nothing in the archive
is trusted without that checksum.
"""

import os
import re
from collections.abc import Collection, Iterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from aquila.core.fleet import DeviceId
from aquila.runtime.files import append, make_folder, overwrite, sync_files, sync_folder

LENGTH_BYTES = 8
"""Bytes of the length that precedes each entry in a file."""

CHECKSUM_BYTES = 8

NO_PART = -1
"""The part of a device whose replies have not been archived."""

LOST_PART = -2
"""The part of a device whose archive was found to be incomplete or damaged."""

_PART_NAME = re.compile(r"([0-9]+)-([0-9]+)\.frames")


class Position(NamedTuple):
    """How far a device's archive belongs to a state of the server.

    Args:
        part: The part that the device's next reply is appended to.
        entries: Number of its entries that belong to the state.
        checksum: Running checksum over these entries.
    """

    part: int = NO_PART
    entries: int = 0
    checksum: int = 0

    def after(self, entry: bytes) -> "Position":
        """Return the position after one more entry."""
        previous = self.checksum.to_bytes(CHECKSUM_BYTES, "little")
        digest = blake2b(entry, digest_size=CHECKSUM_BYTES, salt=previous).digest()
        # 63 bits, so that positions can be saved as signed integers
        checksum = int.from_bytes(digest, "little") >> 1
        return Position(self.part, self.entries + 1, checksum)


Part = tuple[DeviceId, int]
"""A device and the number of one of its parts."""


class ReplyArchive(Protocol):
    """Stores entries of parts, in the order in which they were appended."""

    def begin(self, device: DeviceId, part: int, entry: bytes) -> None:
        """Store a part with its first entry, durably after `sync`.

        An older part of this number is replaced. No state that can be restored may need it.
        """
        ...

    def append(self, device: DeviceId, part: int, entry: bytes) -> int:
        """Store an entry, durably after `sync`; return the bytes of the part.

        Raises FileNotFoundError if the part does not exist.
        """
        ...

    def sync(self) -> None:
        """Make all stored entries durable."""
        ...

    def entries(self, device: DeviceId, part: int) -> Iterator[bytes]:
        """Yield the complete entries of a part one by one; none if the part does not exist."""
        ...

    def has_entries(self, device: DeviceId, part: int, entries: int) -> bool:
        """Return whether a part has at least this many entries. Their content is not read."""
        ...

    def truncate(self, device: DeviceId, part: int, entries: int) -> None:
        """Drop all but the first entries of a part that has at least this many."""
        ...

    def keep_only(self, parts: Collection[Part]) -> None:
        """Delete all other parts."""
        ...


class FolderArchive:
    """One file per part, readable only by its owner.

    A crash may leave an incomplete entry, or entries that are ahead of the server's state.
    `truncate` removes both.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unsynced: set[Path] = set()
        self._has_new_names = False
        make_folder(folder, private=True)

    def begin(self, device: DeviceId, part: int, entry: bytes) -> None:
        """Store a part with its first entry. `sync` makes it durable."""
        path = self._path(device, part)
        overwrite(path, (_length(entry), entry))
        self._unsynced.add(path)
        self._has_new_names = True

    def append(self, device: DeviceId, part: int, entry: bytes) -> int:
        """Store an entry. A power cut may destroy it before `sync` has returned."""
        path = self._path(device, part)
        size = append(path, _length(entry) + entry, sync=False)
        self._unsynced.add(path)
        return size

    def sync(self) -> None:
        """Flush the stored entries of all parts to disk, many at a time."""
        paths, self._unsynced = self._unsynced, set()
        sync_files(paths)
        if self._has_new_names:
            sync_folder(self._folder)
            self._has_new_names = False

    def entries(self, device: DeviceId, part: int) -> Iterator[bytes]:
        """Yield the complete entries of a part one by one; none if the part does not exist."""
        path = self._path(device, part)
        if not path.exists():
            return
        with path.open("rb") as file:
            for offset, length in scan_entries(file):
                file.seek(offset)
                yield file.read(length)

    def has_entries(self, device: DeviceId, part: int, entries: int) -> bool:
        """Return whether a part has at least this many entries. Their content is not read."""
        path = self._path(device, part)
        if not path.exists():
            return False
        with path.open("rb") as file:
            return sum(1 for _ in islice(scan_entries(file), entries)) == entries

    def truncate(self, device: DeviceId, part: int, entries: int) -> None:
        """Drop all but the first entries of a part that has at least this many."""
        with self._path(device, part).open("r+b") as file:
            end = 0
            for offset, length in islice(scan_entries(file), entries):
                end = offset + length
            if end < os.fstat(file.fileno()).st_size:
                file.truncate(end)
                os.fsync(file.fileno())

    def keep_only(self, parts: Collection[Part]) -> None:
        """Delete all other parts."""
        for path in self._folder.iterdir():
            if (part := _part_of(path)) is not None and part not in parts:
                path.unlink()

    @property
    def is_empty(self) -> bool:
        """Whether the archive has no part."""
        return all(_part_of(path) is None for path in self._folder.iterdir())

    def _path(self, device: DeviceId, part: int) -> Path:
        return self._folder / f"{device}-{part}.frames"


def _part_of(path: Path) -> Part | None:
    match = _PART_NAME.fullmatch(path.name)
    return None if match is None else (int(match[1]), int(match[2]))


def _length(entry: bytes) -> bytes:
    return len(entry).to_bytes(LENGTH_BYTES, "little")


def scan_entries(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Yield offset and length of every complete entry of a file."""
    size, position = os.fstat(file.fileno()).st_size, 0
    while position + LENGTH_BYTES <= size:
        file.seek(position)
        offset = position + LENGTH_BYTES
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if offset + length > size:
            return
        yield offset, length
        position = offset + length
