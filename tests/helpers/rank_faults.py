"""A rank that ends or hangs, and what the other ranks say then."""

import os
import time

import torch.distributed as dist

HANG_SECONDS = 2.5


def fail_on_rank_1(how):
    """End rank 1 (`kill`), or let it hang for a while."""
    if dist.get_rank() == 1:
        if how == "kill":
            os.kill(os.getpid(), 9)
        time.sleep(HANG_SECONDS)


def error_and_seconds(error_type, function, *arguments):
    """Return the message of the error that a function raises, and the time it took, else None."""
    started = time.monotonic()
    try:
        function(*arguments)
    except error_type as error:
        return str(error), time.monotonic() - started
    return None
