"""Atomic file writes: a crash leaves the old file or the new one, never a part of either."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_BINARY = getattr(os, "O_BINARY", 0)


@contextmanager
def atomic_file(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` once the block has ended without an error.

    The content is on disk before the replacement. Only the owner can read a `private` file.
    """
    temporary = path.with_name(path.name + ".tmp")
    flags, mode = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY, 0o600 if private else 0o666
    descriptor = os.open(temporary, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def atomic_write(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file atomically."""
    with atomic_file(path, private=private) as file:
        file.write(content)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, on systems that support it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
