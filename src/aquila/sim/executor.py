"""Executors run the devices of a round: sequentially, on threads, or on a GPU.

Every executor gives the same bits. A turn depends only on its order, its key and the device's
state, and thread-safe devices always compute on one torch thread.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Protocol, TypeVar

import torch

from aquila.core.fleet import DeviceId
from aquila.core.packet import Packet
from aquila.runtime.options import ExecutorChoice
from aquila.sim.hardware import core_count
from aquila.training.cuda_graph import CAPTURE_LOCK
from aquila.training.torch_threads import torch_threads

MIN_THREADED_SECONDS = 2e-3
"""Shortest turn for which threads are faster. Shorter turns compete for the interpreter lock."""

CLEARLY_LONG_SECONDS = 10 * MIN_THREADED_SECONDS
"""A turn that takes longer needs no second measurement."""

MAX_TIMED_TURNS = 6
"""Turns before the choice between threads and one worker."""

GPU_WORKERS = 3
"""Devices that run at once on a GPU, so that it has work while one of them waits for the host."""

T = TypeVar("T")


class RoundWork(Protocol):
    """The work of one round: which devices answer, and what to do with each of them."""

    @property
    def devices(self) -> Sequence[DeviceId]:
        """Devices that received an order."""
        ...

    def prefetch(self, devices: Sequence[DeviceId]) -> None:
        """Announce devices that will answer one after another, so that they can be batched."""
        ...

    def answer(self, device: DeviceId) -> Packet | None:
        """Compute the device's reply, None if the device failed."""
        ...

    def deliver(self, device: DeviceId, reply: Packet | None) -> bool:
        """Pack a reply and send it; return whether it arrived. Thread-safe."""
        ...


class Executor(Protocol):
    """Runs the devices of a round."""

    def run(self, work: RoundWork) -> int:
        """Let every device answer, deliver every reply, and return how many arrived."""
        ...


def executor_for(
    torch_device: torch.device,
    thread_safe: bool | None,
    workers: int = 0,
    executor: ExecutorChoice = "auto",
) -> Executor:
    """Return the executor for devices on a torch device.

    Args:
        torch_device: Where the devices compute.
        thread_safe: Whether devices may run at the same time, None if unknown.
        workers: Devices that run at the same time, 0 to choose automatically.
        executor: Kind of executor.
    """
    if executor in ("sequential", "batched"):
        if workers > 1:
            raise ValueError(f"the executor {executor} runs 1 worker, not {workers}; use threads")
        workers = 1
    elif executor == "threads":
        workers = workers or (core_count() if torch_device.type == "cpu" else GPU_WORKERS)
    if workers > 1 and thread_safe is False:
        raise ValueError(
            "the model draws random numbers (dropout, for example) from torch's global generator, "
            "or a shard is a Dataset or DataLoader, so the devices cannot run on several threads; "
            "use the executor auto or sequential, with workers 0 or 1"
        )
    if torch_device.type == "cuda":
        return GpuExecutor(thread_safe, workers)
    return CpuExecutor(thread_safe, workers, prefetches=executor in ("auto", "batched"))


class CpuExecutor:
    """Runs devices sequentially or on threads; without `workers`, timed turns decide."""

    def __init__(self, thread_safe: bool | None, workers: int, prefetches: bool = True) -> None:
        self._thread_safe = thread_safe
        self._prefetches = prefetches
        # 0: not chosen yet; devices of unknown thread safety get threads only on request
        self._workers = 1 if thread_safe is None and workers == 0 else workers
        self._threads: ThreadPoolExecutor | None = None

    def run(self, work: RoundWork) -> int:
        """Let every device answer and deliver every reply."""

        def turn(device: DeviceId) -> bool:
            return work.deliver(device, work.answer(device))

        devices = work.devices
        with torch_threads(1 if self._thread_safe else None):
            first = [] if self._workers or len(devices) < 2 else self._choose_workers(turn, devices)
            rest = devices[len(first) :]
            if self._workers <= 1:
                if self._prefetches:
                    work.prefetch(rest)
                return sum(first) + sum([turn(device) for device in rest])
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._workers, "device", _use_one_thread)
        try:
            submitted = (self._threads.submit(turn, device) for device in rest)
            return sum(first) + sum(_wait_for_all(submitted))
        except BaseException:
            # after an interrupt the pool may hold a thread that it has not registered yet
            self._threads.shutdown()
            self._threads = None
            raise

    def _choose_workers(
        self, turn: Callable[[DeviceId], bool], devices: Sequence[DeviceId]
    ) -> list[bool]:
        """Run one turn to warm up and a few to measure, and set the workers.

        One short turn shows that threads do not pay. Turns that are a little too long for that may
        be first turns that load data or code, or turns on a busy machine.
        """
        arrived, seconds = [turn(devices[0])], 0.0
        for device in devices[1:MAX_TIMED_TURNS]:
            start = time.thread_time()  # not the wall clock, which other processes slow down
            arrived.append(turn(device))
            seconds = time.thread_time() - start
            if not MIN_THREADED_SECONDS < seconds < CLEARLY_LONG_SECONDS:
                break
        use_threads = self._thread_safe and seconds > MIN_THREADED_SECONDS
        self._workers = core_count() if use_threads else 1
        return arrived


class GpuExecutor:
    """Runs devices on threads with their own CUDA streams, and packs replies on other threads.

    While one device waits for the host, another one computes. Devices that are not known to be
    thread-safe stay on the caller's thread.
    """

    def __init__(self, thread_safe: bool | None, workers: int) -> None:
        self._device_threads: ThreadPoolExecutor | None = None
        self._copy_stream: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._thread_local = threading.local()
        workers = workers or (GPU_WORKERS if thread_safe else 1)
        self._coding_threads = ThreadPoolExecutor(max(1, core_count() - workers), "coding")
        if workers > 1:
            self._device_threads = ThreadPoolExecutor(workers, "device")

    def run(self, work: RoundWork) -> int:
        """Let every device answer, and deliver its reply while others train."""
        delivered: dict[DeviceId, Future[bool]] = {}

        def turn(device: DeviceId) -> None:
            reply = work.answer(device)
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record()
            deliver = partial(work.deliver, device, reply)
            delivered[device] = self._coding_threads.submit(
                self._run_on_stream, self._copy_stream, deliver, ready
            )

        try:
            if self._device_threads is None:
                for device in work.devices:
                    turn(device)
            else:
                _wait_for_all(
                    self._device_threads.submit(self._run_on_own_stream, partial(turn, device))
                    for device in work.devices
                )
        finally:  # no delivery may still run when a failure is reported
            arrived = _wait_for_all(delivered[d] for d in work.devices if d in delivered)
        return sum(arrived)

    def _run_on_own_stream(self, work: Callable[[], T]) -> T:
        if not hasattr(self._thread_local, "stream"):
            self._thread_local.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        return self._run_on_stream(self._thread_local.stream, work)

    @staticmethod
    def _run_on_stream(
        stream: torch.cuda.Stream, work: Callable[[], T], after: torch.cuda.Event | None = None
    ) -> T:
        """Run a function on a stream and wait until the GPU has finished."""
        with CAPTURE_LOCK.shared():
            if after is not None:
                stream.wait_event(after)
            with torch.cuda.stream(stream):
                result = work()
            stream.synchronize()
        return result


def _wait_for_all(started: Iterable["Future[T]"]) -> list[T]:
    """Wait for all futures. After a failure or an interrupt, cancel those that have not begun."""
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
