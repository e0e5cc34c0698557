"""A lock that lets one process at a time use a file or a folder."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        path: The lock file. It stays behind, because deleting it could free a lock that is held.
        resource: What the lock protects, for messages.
        seconds: How long to wait for another process that holds the lock.
        on_wait: Gets a message before the first wait.

    Raises:
        TimeoutError: The other process did not release the lock in time.
    """
    with open(path, "ab", opener=_private) as file:
        if not _try_lock(file):
            if seconds and on_wait is not None:
                on_wait(f"another process is using {resource}; waiting for it")
            if not any(_try_lock(file) for _ in backoff(seconds)):
                raise TimeoutError(
                    f"another process is still using {resource} after {seconds:g} s; stop the "
                    f"process that holds {path}"
                )
        yield


def _try_lock(file: IO[bytes]) -> bool:
    """Take the lock if it is free.

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


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
