"""An error line within seconds if the process of a server app is killed.

Flower notices a killed server app by its missing heartbeats, after about a minute, and says nothing
even then: it discards what the process and its children print. A shell that waits for the end of a
pipe therefore writes the line to a file, which the server's start script shows.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

NOTICES_VARIABLE = "AQUILA_NOTICES"
"""Environment variable with the file for such lines. Without it they go to stderr."""

NOTICE = "the server app ended unexpectedly"

_WAIT_AND_PRINT = 'trap "" INT TERM; read -r line || printf "%s\\n" "$0" >> "$1"'


@contextmanager
def death_notice(run: str) -> Iterator[None]:
    """Write an error line if this process ends inside the block without leaving it."""
    text = f"ERROR: {NOTICE}; start the run again to resume it: {run}"
    target = os.environ.get(NOTICES_VARIABLE, "/dev/stderr")
    command = ["/bin/sh", "-c", _WAIT_AND_PRINT, text, target]
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            watcher.communicate(b"end\n")
