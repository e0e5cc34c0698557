"""A lock that lets one process at a time use a file.

A killed SuperNode or SuperLink may leave its last process running next to the processes of its
replacement.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging import getLogger
from pathlib import Path
from typing import IO

from aquila.flower.backoff import backoff

if sys.platform != "win32":
    import fcntl

LOG = getLogger("flwr.aquila")


@contextmanager
def file_lock(path: Path, resource: str, seconds: float) -> Iterator[None]:
    """Hold a lock, which the system releases when this process ends.

    Args:
        path: The lock file.
        resource: What the lock protects, for log and error messages.
        seconds: How long to wait for another process that holds the lock.

    Raises:
        TimeoutError: The other process did not release the lock in time.
    """
    with open(path, "ab", opener=_private) as file:
        if not _try_lock(file):
            LOG.warning("another process is using %s; waiting for it", resource)
            if not any(_try_lock(file) for _ in backoff(seconds)):
                raise TimeoutError(
                    f"another process is still using {resource} after {seconds:g} s; stop the "
                    f"process that holds {path}"
                )
        yield


def _try_lock(file: IO[bytes]) -> bool:
    """Take the lock if it is free. On Windows it always counts as free."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
