"""File writes that a crash or a full disk cannot spoil, and small files of JSON.

Each OSError names the file that could not be written.
"""

import json
import os
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

SYNC_THREADS = 16
"""Files that are flushed at the same time. The file system combines their waits for the disk."""

_BINARY = getattr(os, "O_BINARY", 0)


@contextmanager
def atomic_file(path: Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` once the block has ended without an error.

    A crash leaves the old file or the new one, never a part of either. The content is on disk
    before the replacement. Only the owner can read a `private` file.
    """
    temporary = path.with_name(path.name + ".tmp")
    flags, mode = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY, 0o600 if private else 0o666
    with _named_errors(path, temporary):
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


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, None if it is not JSON. FileNotFoundError if missing."""
    try:
        return json.loads(path.read_text())
    except (ValueError, RecursionError):
        return None


def overwrite(path: Path, parts: Iterable[bytes]) -> None:
    """Write a private file, neither atomically nor durably. Flush it with `sync_files`."""
    with _named_errors(path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.writelines(parts)


def append(path: Path, content: bytes, *, sync: bool) -> int:
    """Append to a file that exists, and return its size.

    If the disk is full, the file stays as it was. `sync` waits until the content is on the disk.
    """
    with _named_errors(path):
        # without O_CREAT: after a deletion, the new file would lack what was written before
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | _BINARY)
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError:
                file.truncate(size)
                raise
            if sync:
                os.fsync(file.fileno())
            return size + len(content)


def sync_files(paths: Collection[Path]) -> None:
    """Wait until the contents of files are on the disk."""
    if paths:
        with ThreadPoolExecutor(min(len(paths), SYNC_THREADS)) as pool:
            list(pool.map(_sync_file, paths))


def _sync_file(path: Path) -> None:
    with _named_errors(path):
        descriptor = os.open(path, os.O_RDWR | _BINARY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check_folder(path: Path) -> None:
    """Raise ValueError unless files can be written to this folder, or it can be created."""
    places = (path, *path.absolute().parents)
    existing = next(place for place in places if os.path.lexists(place))
    if not existing.is_dir():
        raise ValueError(f"{existing} is a file, not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f"{existing} is not writable")


def make_folder(path: Path, *, private: bool = False) -> None:
    """Create a folder and its parents on disk; ValueError if that cannot work.

    Only the owner can read a new `private` folder.
    """
    check_folder(path)
    missing = [place for place in (path, *path.parents) if not place.exists()]
    for place in reversed(missing):
        with _named_errors(place):
            place.mkdir(mode=0o700 if private and place == path else 0o777, exist_ok=True)
            sync_folder(place.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, on systems that support it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _named_errors(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Put the path into errors of writes and flushes, which do not name a file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
