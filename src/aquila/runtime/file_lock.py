"""A lock that lets one process at a time use a file or a folder."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from aquila.runtime.backoff import backoff

if sys.platform != "win32":
    import fcntl

LOCK_FILE = "lock"
"""Lock file in the folder of a run, of the simulator or of a server."""
NOT_SUPPORTED = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}


@contextmanager
def file_lock(
    path: Path,
    resource: str,
    seconds: float = 0,
    on_wait: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """Hold a lock, which the system releases when this process ends.

    Args:
        path: The lock file. It is deleted afterwards.
        resource: What the lock protects, for messages.
        seconds: How long to wait for another process that holds the lock.
        on_wait: Gets a message before the first wait.

    Raises:
        TimeoutError: The other process did not release the lock in time.
    """
    file = _try_lock(path)
    if file is None:
        if seconds and on_wait is not None:
            on_wait(f"another process is using {resource}; waiting for it")
        tries = (_try_lock(path) for _ in backoff(seconds))
        file = next((file for file in tries if file is not None), None)
        if file is None:
            raise TimeoutError(
                f"another process is still using {resource} after {seconds:g} s; stop the "
                f"process that holds {path}"
            )
    with file:
        try:
            yield
        finally:
            if sys.platform != "win32":  # there, an open file cannot be deleted
                path.unlink(missing_ok=True)


def _try_lock(path: Path) -> IO[bytes] | None:
    """Return the locked file; None if another process has locked it."""
    while True:
        with ExitStack() as stack:
            file = stack.enter_context(open(path, "ab", opener=_private))
            if not _flock(file):
                return None
            if _is_current(path, file):
                stack.pop_all()
                return file


def _flock(file: IO[bytes]) -> bool:
    """Lock an open file if it is free.

    On Windows, and on file systems without locks, it always counts as free.
    """
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NOT_SUPPORTED:
            raise
    return True


def _is_current(path: Path, file: IO[bytes]) -> bool:
    """Whether the path still names this file; its last holder may just have deleted it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
