"""Work done beside the devices' own: where a GPU trains, threads see to the bytes meanwhile."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

from aquila.sim.graph import QUIET

THREADS = 4
_LOCAL = threading.local()

T = TypeVar("T")


class Beside:
    """Runs work at once on the CPU, and on threads with streams of their own for a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._threads: ThreadPoolExecutor | None = None
        if device.type == "cuda":
            self._threads = ThreadPoolExecutor(THREADS, "beside")

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Start some work on tensors that are ready once the GPU has done what is queued so far."""
        if self._threads is None:
            done: Future[T] = Future()
            done.set_result(work())
            return done
        ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
        ready.record()
        return self._threads.submit(_on_own_stream, ready, work)


def _on_own_stream(ready: torch.cuda.Event, work: Callable[[], T]) -> T:
    with QUIET.working():
        if not hasattr(_LOCAL, "stream"):
            _LOCAL.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream: torch.cuda.Stream = _LOCAL.stream
        stream.wait_event(ready)
        with torch.cuda.stream(stream):
            result = work()
        stream.synchronize()
    return result
