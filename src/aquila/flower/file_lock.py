"""One process at a time on a file that several may come to write.

A SuperNode or SuperLink that was killed may leave its last process behind, beside those of the
one that was started in its place.
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
def file_lock(path: Path, work: str, seconds: float) -> Iterator[None]:
    """Hold a lock that ends with this process; wait so long for another one that has it.

    `work` says what is being done. TimeoutError if the other process does not end.
    """
    with open(path, "ab", opener=_private) as file:
        if not _try_lock(file):
            LOG.warning("another process is at %s; waiting for it", work)
            if not any(_try_lock(file) for _ in backoff(seconds)):
                raise TimeoutError(
                    f"another process is still at {work} after {seconds:g} s; end the one that "
                    f"holds {path}"
                )
        yield


def _try_lock(file: IO[bytes]) -> bool:
    """Take the lock if it is free; where the system has none, it always is."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
