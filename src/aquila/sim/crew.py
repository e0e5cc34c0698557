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
from aquila.sim.graph import QUIET
from aquila.sim.hardware import core_count

WORTH_A_THREAD = 2e-3
"""Seconds a turn must take for threads to pay: they pass the interpreter's lock to each other."""

GPU_WORKERS = 3
"""Devices at once on a GPU, so that it has work while one of them waits for the host."""

Strategy = Literal["auto", "one_by_one", "together", "side_by_side"]
"""How devices get their turns; `together` also one by one, but with gradients of many at once."""

Answer = Callable[[DeviceId], Packet]
Deliver = Callable[[DeviceId, Packet], bool]
Foresee = Callable[[Sequence[DeviceId]], None]
T = TypeVar("T")


class Crew(Protocol):
    """Does the turns of a round."""

    def turns(
        self, devices: Sequence[DeviceId], answer: Answer, deliver: Deliver, foresee: Foresee
    ) -> list[bool]:
        """Have every device answer and every answer delivered; return what delivering returned.

        Tells `foresee` of devices that will answer one after another.
        """


def crew_for(
    place: torch.device, side_by_side: bool | None, workers: int = 0, strategy: Strategy = "auto"
) -> Crew:
    """Return the crew for devices that compute at a place.

    `side_by_side` says whether devices may have their turns at the same time; None means that
    nobody knows. `workers` is how many do, or 0 to have it chosen.
    """
    if strategy not in get_args(Strategy):
        raise ValueError(f"strategy must be one of {', '.join(get_args(Strategy))}, not {strategy}")
    if workers < 0:
        raise ValueError(f"workers must be at least 1, or 0 to have them chosen, not {workers}")
    if strategy in ("one_by_one", "together"):
        if workers > 1:
            raise ValueError(f"{workers} workers are for strategy side_by_side, not {strategy}")
        workers = 1
    elif strategy == "side_by_side":
        workers = workers or (core_count() if place.type == "cpu" else GPU_WORKERS)
    if workers > 1 and side_by_side is False:
        raise ValueError(
            "the model draws random numbers (dropout, say) from torch's one generator, so its "
            "devices cannot be trained side by side; leave workers at 0 or 1"
        )
    if place.type == "cuda":
        return GpuCrew(side_by_side, workers)
    return CpuCrew(side_by_side, workers, foresees=strategy in ("auto", "together"))


class CpuCrew:
    """Devices one after another until two have shown whether threads pay."""

    def __init__(self, side_by_side: bool | None, workers: int, foresees: bool = True) -> None:
        self._side_by_side = side_by_side
        self._foresees = foresees
        self._workers = workers if side_by_side is not None or workers else 1
        self._threads: ThreadPoolExecutor | None = None

    def turns(
        self, devices: Sequence[DeviceId], answer: Answer, deliver: Deliver, foresee: Foresee
    ) -> list[bool]:
        """Have every device answer and every answer delivered."""

        def turn(device: DeviceId) -> bool:
            return deliver(device, answer(device))

        with _own_threads(1 if self._side_by_side else None):
            first = [] if self._workers or len(devices) < 2 else self._choose(turn, devices)
            rest = devices[len(first) :]
            if self._workers <= 1:
                if self._foresees:
                    foresee(rest)
                return first + [turn(device) for device in rest]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._workers, "device", _compute_alone)
        try:
            return first + _results(self._threads.submit(turn, device) for device in rest)
        except BaseException:
            # an interrupt may have come before a new thread was known to those who end it
            self._threads.shutdown()
            self._threads = None
            raise

    def _choose(self, turn: Callable[[DeviceId], bool], devices: Sequence[DeviceId]) -> list[bool]:
        """Have two devices take their turns; the first warms up, the second is timed."""
        first = turn(devices[0])
        start = time.perf_counter()
        second = turn(devices[1])
        pays = self._side_by_side and time.perf_counter() - start > WORTH_A_THREAD
        self._workers = core_count() if pays else 1
        return [first, second]


class GpuCrew:
    """Devices on threads with streams of their own; others turn their replies into bytes meanwhile.

    While one device waits for the host, another one computes. Devices of which nobody knows whether
    they may be side by side stay on the caller's thread.
    """

    def __init__(self, side_by_side: bool | None, workers: int) -> None:
        self._training: ThreadPoolExecutor | None = None
        self._copies: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._local = threading.local()
        workers = workers or (GPU_WORKERS if side_by_side else 1)
        self._coding = ThreadPoolExecutor(max(1, core_count() - workers), "coding")
        if workers > 1:
            self._training = ThreadPoolExecutor(workers, "device")

    def turns(
        self, devices: Sequence[DeviceId], answer: Answer, deliver: Deliver, foresee: Foresee
    ) -> list[bool]:
        """Have every device answer, and its answer delivered while others train."""
        delivered: dict[DeviceId, Future[bool]] = {}

        def turn(device: DeviceId) -> None:
            reply = answer(device)
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record()
            work = partial(deliver, device, reply)
            delivered[device] = self._coding.submit(self._on, self._copies, work, ready)

        try:
            if self._training is None:
                for device in devices:
                    turn(device)
            else:
                _results(
                    self._training.submit(self._on_own_stream, partial(turn, device))
                    for device in devices
                )
        finally:  # nothing may still be on its way when a failure is reported
            arrived = _results(delivered[device] for device in devices if device in delivered)
        return arrived

    def _on_own_stream(self, work: Callable[[], T]) -> T:
        if not hasattr(self._local, "stream"):
            self._local.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        return self._on(self._local.stream, work)

    @staticmethod
    def _on(
        stream: torch.cuda.Stream, work: Callable[[], T], after: torch.cuda.Event | None = None
    ) -> T:
        """Do some work on a stream, and wait until the GPU has done it."""
        with QUIET.working():
            if after is not None:
                stream.wait_event(after)
            with torch.cuda.stream(stream):
                result = work()
            stream.synchronize()
        return result


def _results(started: Iterable["Future[T]"]) -> list[T]:
    """Wait for all; if one fails or the user interrupts, call off those that have not begun."""
    futures: list[Future[T]] = []
    try:
        futures.extend(started)
        return _waited(futures)
    except BaseException:
        for future in futures:
            future.cancel()
        wait(futures)
        raise


def _waited(futures: Sequence["Future[T]"]) -> list[T]:
    return [future.result() for future in futures]


def _compute_alone() -> None:
    torch.set_num_threads(1)


@contextmanager
def _own_threads(count: int | None) -> Iterator[None]:
    """Compute on so many threads, or on as many as torch is set to."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
