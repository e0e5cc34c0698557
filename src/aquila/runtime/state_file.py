"""The file format of saved sessions, and how files of earlier versions are read.

A file is a header (AQST, version, checksum of the rest) and an `.npz` archive. Arrays are written
one after another, so that saving a large model takes no copy of it.
"""

import io
import shutil
import struct
import zlib
from logging import getLogger
from pathlib import Path
from typing import BinaryIO

import numpy as np

from aquila.core.state import Arrays
from aquila.runtime.array_file import READ_ERRORS, read_arrays
from aquila.runtime.files import atomic_file
from aquila.runtime.state_upgrades import UPGRADES

MAGIC = b"AQST"
VERSION = 3
"""Version of new files. A change that an older reader misunderstands needs a new one, and a step
in `state_upgrades`."""

_HEADER = struct.Struct("<4sII")
_LOG = getLogger("aquila")


class SavedStateError(ValueError):
    """A file does not hold a usable state of this session."""


class _ChecksumStream(io.RawIOBase):
    """Passes bytes on to a file and computes their checksum. It cannot seek."""

    def __init__(self, file: BinaryIO) -> None:
        self.checksum = 0
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.checksum = zlib.crc32(data, self.checksum)
        return self._file.write(data)


def write_state(file: BinaryIO, arrays: Arrays) -> None:
    """Write arrays to a new file."""
    file.write(bytes(_HEADER.size))
    stream = _ChecksumStream(file)
    np.savez(stream, allow_pickle=False, **arrays)
    file.seek(0)
    file.write(_HEADER.pack(MAGIC, VERSION, stream.checksum))


def state_to_bytes(arrays: Arrays) -> bytes:
    """Return the content of a file with these arrays."""
    content = io.BytesIO()
    write_state(content, arrays)
    return content.getvalue()


def save_state(path: Path, arrays: Arrays) -> None:
    """Write a file atomically. Only its owner can read it."""
    with atomic_file(path, private=True) as file:
        write_state(file, arrays)


def read_state(content: bytes) -> Arrays:
    """Return the arrays of a file, converted to the current version; else SavedStateError."""
    version, checksum = _header(content)
    _check_version(version)
    if zlib.crc32(memoryview(content)[_HEADER.size :]) != checksum:
        raise SavedStateError("the saved session is damaged: its checksum does not match")
    try:
        arrays = read_arrays(io.BytesIO(memoryview(content)[_HEADER.size :]))
        for earlier in range(version, VERSION):
            arrays = UPGRADES[earlier](arrays)
    except READ_ERRORS as error:
        raise unusable(error) from error
    return arrays


def keep_earlier_version(path: Path) -> None:
    """Copy a file of an earlier version, because the next save replaces it by the current one."""
    with path.open("rb") as file:
        version, _ = _header(file.read(_HEADER.size))
    backup = path.with_name(f"{path.name}.version-{version}")
    if version == VERSION or backup.exists():
        return
    with path.open("rb") as source, atomic_file(backup, private=True) as target:
        shutil.copyfileobj(source, target)
    _LOG.warning(
        "%s has version %d; it continues as version %d, and %s keeps the old file",
        path, version, VERSION, backup.name,
    )  # fmt: skip


def unusable(error: Exception) -> SavedStateError:
    """Return the error of a file whose content does not fit."""
    return SavedStateError(f"the saved session cannot be used: {error}")


def _header(content: bytes) -> tuple[int, int]:
    """Return the version and the checksum of a file."""
    if len(content) < _HEADER.size or content[:4] != MAGIC:
        raise SavedStateError("the file is not a saved session: it does not start with AQST")
    _, version, checksum = _HEADER.unpack_from(content)
    return version, checksum


def _check_version(version: int) -> None:
    if version != VERSION and version not in UPGRADES:
        raise SavedStateError(
            f"the saved session has version {version}; this release reads versions "
            f"{min(UPGRADES)} to {VERSION}"
        )
