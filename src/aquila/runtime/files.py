"""Files that are there whole or not at all, whenever the machine stops."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the path's place only once it is on the disk.

    Its owner alone may read it.
    """
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with atomic_file(path) as file:
        file.write(content)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder survive a crash, where the system can be asked to."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_BINARY = getattr(os, "O_BINARY", 0)
