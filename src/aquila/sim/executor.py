"""Who does a round's work: devices one after another, side by side on threads, or on a GPU.

Whoever does it, the results are the same to the last bit: a turn depends on its order, its key and
the device's state alone, and devices that may be trained side by side always compute on one thread.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Literal, Protocol, TypeVar, get_args

import torch

from aquila.core.fleet import DeviceId
from aquila.core.packet import Packet
from aquila.sim.cuda_graph import CAPTURE_LOCK
from aquila.sim.hardware import core_count

MIN_THREADED_SECONDS = 2e-3
"""Seconds a turn must take for threads to pay: they pass the interpreter's lock to each other."""

GPU_WORKERS = 3
"""Devices at once on a GPU, so that it has work while one of them waits for the host."""

ExecutorChoice = Literal["auto", "sequential", "batched", "threads"]
"""How devices get their turns; `batched` also one by one, but with gradients of many at once."""

AnswerOrder = Callable[[DeviceId], Packet]
DeliverReply = Callable[[DeviceId, Packet], bool]
Prefetch = Callable[[Sequence[DeviceId]], None]
T = TypeVar("T")


class Executor(Protocol):
    """Does the turns of a round."""

    def run_turns(
        self,
        devices: Sequence[DeviceId],
        answer: AnswerOrder,
        deliver: DeliverReply,
        prefetch: Prefetch,
    ) -> list[bool]:
        """Have every device answer and every answer delivered; return what delivering returned.

        Tells `prefetch` of devices that will answer one after another.
        """


def executor_for(
    torch_device: torch.device,
    thread_safe: bool | None,
    workers: int = 0,
    executor: ExecutorChoice = "auto",
) -> Executor:
    """Return the executor for devices on a torch device.

    `thread_safe` says whether devices may have their turns at the same time; None means that
    nobody knows. `workers` is how many do, or 0 to have it chosen.
    """
    if executor not in get_args(ExecutorChoice):
        raise ValueError(
            f"executor must be one of {', '.join(get_args(ExecutorChoice))}, not {executor}"
        )
    if workers < 0:
        raise ValueError(f"workers must be at least 1, or 0 to have them chosen, not {workers}")
    if executor in ("sequential", "batched"):
        if workers > 1:
            raise ValueError(f"{workers} workers are for executor threads, not {executor}")
        workers = 1
    elif executor == "threads":
        workers = workers or (core_count() if torch_device.type == "cpu" else GPU_WORKERS)
    if workers > 1 and thread_safe is False:
        raise ValueError(
            "the model draws random numbers (dropout, say) from torch's one generator, so its "
            "devices cannot be trained side by side; leave workers at 0 or 1"
        )
    if torch_device.type == "cuda":
        return GpuExecutor(thread_safe, workers)
    return CpuExecutor(thread_safe, workers, prefetches=executor in ("auto", "batched"))


class CpuExecutor:
    """Devices one after another until two have shown whether threads pay."""

    def __init__(self, thread_safe: bool | None, workers: int, prefetches: bool = True) -> None:
        self._thread_safe = thread_safe
        self._prefetches = prefetches
        self._workers = workers if thread_safe is not None or workers else 1
        self._threads: ThreadPoolExecutor | None = None

    def run_turns(
        self,
        devices: Sequence[DeviceId],
        answer: AnswerOrder,
        deliver: DeliverReply,
        prefetch: Prefetch,
    ) -> list[bool]:
        """Have every device answer and every answer delivered."""

        def turn(device: DeviceId) -> bool:
            return deliver(device, answer(device))

        with _torch_threads(1 if self._thread_safe else None):
            first = [] if self._workers or len(devices) < 2 else self._choose_workers(turn, devices)
            rest = devices[len(first) :]
            if self._workers <= 1:
                if self._prefetches:
                    prefetch(rest)
                return first + [turn(device) for device in rest]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._workers, "device", _use_one_thread)
        try:
            return first + _wait_for_all(self._threads.submit(turn, device) for device in rest)
        except BaseException:
            # an interrupt may have come before a new thread was known to those who end it
            self._threads.shutdown()
            self._threads = None
            raise

    def _choose_workers(
        self, turn: Callable[[DeviceId], bool], devices: Sequence[DeviceId]
    ) -> list[bool]:
        """Have two devices take their turns; the first warms up, the second is timed."""
        first = turn(devices[0])
        start = time.perf_counter()
        second = turn(devices[1])
        pays = self._thread_safe and time.perf_counter() - start > MIN_THREADED_SECONDS
        self._workers = core_count() if pays else 1
        return [first, second]


class GpuExecutor:
    """Devices on threads with streams of their own; others turn their replies into bytes meanwhile.

    While one device waits for the host, another one computes. Devices of which nobody knows whether
    they may be side by side stay on the caller's thread.
    """

    def __init__(self, thread_safe: bool | None, workers: int) -> None:
        self._device_threads: ThreadPoolExecutor | None = None
        self._copy_stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._thread_local = threading.local()
        workers = workers or (GPU_WORKERS if thread_safe else 1)
        self._coding_threads = ThreadPoolExecutor(max(1, core_count() - workers), "coding")
        if workers > 1:
            self._device_threads = ThreadPoolExecutor(workers, "device")

    def run_turns(
        self,
        devices: Sequence[DeviceId],
        answer: AnswerOrder,
        deliver: DeliverReply,
        prefetch: Prefetch,
    ) -> list[bool]:
        """Have every device answer, and its answer delivered while others train."""
        delivered: dict[DeviceId, Future[bool]] = {}

        def turn(device: DeviceId) -> None:
            reply = answer(device)
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record()
            work = partial(deliver, device, reply)
            delivered[device] = self._coding_threads.submit(
                self._run_on_stream, self._copy_stream, work, ready
            )

        try:
            if self._device_threads is None:
                for device in devices:
                    turn(device)
            else:
                _wait_for_all(
                    self._device_threads.submit(self._run_on_own_stream, partial(turn, device))
                    for device in devices
                )
        finally:  # nothing may still be on its way when a failure is reported
            arrived = _wait_for_all(delivered[device] for device in devices if device in delivered)
        return arrived

    def _run_on_own_stream(self, work: Callable[[], T]) -> T:
        if not hasattr(self._thread_local, "stream"):
            self._thread_local.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        return self._run_on_stream(self._thread_local.stream, work)

    @staticmethod
    def _run_on_stream(
        stream: torch.cuda.Stream, work: Callable[[], T], after: torch.cuda.Event | None = None
    ) -> T:
        """Do some work on a stream, and wait until the GPU has done it."""
        with CAPTURE_LOCK.shared():
            if after is not None:
                stream.wait_event(after)
            with torch.cuda.stream(stream):
                result = work()
            stream.synchronize()
        return result


def _wait_for_all(started: Iterable["Future[T]"]) -> list[T]:
    """Wait for all; if one fails or the user interrupts, call off those that have not begun."""
    futures: list[Future[T]] = []
    try:
        futures.extend(started)
        return _collect(futures)
    except BaseException:
        for future in futures:
            future.cancel()
        wait(futures)
        raise


def _collect(futures: Sequence["Future[T]"]) -> list[T]:
    return [future.result() for future in futures]


def _use_one_thread() -> None:
    torch.set_num_threads(1)


@contextmanager
def _torch_threads(count: int | None) -> Iterator[None]:
    """Compute on so many threads, or on as many as torch is set to."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
