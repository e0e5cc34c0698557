"""The frames of an open round, kept as bytes: in memory while they are few, else on disk."""

from collections.abc import Callable
from pathlib import Path
from tempfile import SpooledTemporaryFile
from threading import Lock
from weakref import finalize

MAX_MEMORY_BYTES = 2**26
"""Bytes of frames that stay in memory. More of them go to a temporary file."""

ReadFrame = Callable[[], bytes]
"""Returns the frame of a reply."""


def in_memory(frame: bytes) -> ReadFrame:
    """Return a function that returns this frame."""
    return lambda: frame


class FrameSpool:
    """Keeps frames in the order of their arrival. They are gone when the spool is.

    Threads may add and read frames at the same time.

    Args:
        folder: Where the temporary file is created.
        max_memory_bytes: Bytes that stay in memory.
    """

    def __init__(self, folder: Path, max_memory_bytes: int = MAX_MEMORY_BYTES) -> None:
        self._file = SpooledTemporaryFile(max_memory_bytes, dir=str(folder))  # noqa: SIM115
        self._size, self._lock = 0, Lock()
        finalize(self, self._file.close)

    def add(self, frame: bytes) -> ReadFrame:
        """Keep a frame, and return the function that reads it."""
        with self._lock:
            offset, length = self._size, len(frame)
            self._file.seek(offset)
            self._file.write(frame)
            self._size += length

        def read() -> bytes:
            with self._lock:
                self._file.seek(offset)
                return self._file.read(length)

        return read
