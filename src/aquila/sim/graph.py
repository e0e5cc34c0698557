"""CUDA graphs of a training step: recorded once for each shape of batch, then replayed."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from aquila.core.random import Key

WARM_UP = 3
"""Steps run before recording, as the libraries choose and allocate what they need."""

Step = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], None]
"""(inputs, targets, mask of classes) -> one step, in place"""


class Quiet:
    """Keeps GPU work of other threads and the recording of graphs apart, as CUDA demands."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._busy = 0
        self._local = threading.local()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Work that may go on beside other work, but not beside a recording."""
        self._count(+1)
        self._local.working = True
        try:
            yield
        finally:
            self._local.working = False
            self._count(-1)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait for all other work, and keep new work waiting."""
        mine = int(getattr(self._local, "working", False))
        with self._condition:
            self._busy -= mine
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._busy == 0)
            try:
                yield
            finally:
                self._busy += mine

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Not work for a while: others may record."""
        mine = int(getattr(self._local, "working", False))
        self._count(-mine)
        try:
            yield
        finally:
            self._count(+mine)

    def _count(self, change: int) -> None:
        with self._condition:
            self._busy += change
            self._condition.notify_all()


QUIET = Quiet()


class Drawing:
    """Has models draw random numbers one after another, as torch has one generator for all.

    On a GPU the next one's work is queued behind the last one's, so that nobody has to wait for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._drawn: torch.cuda.Event | None = None

    @contextmanager
    def seeded(self, seed: int, device: torch.device) -> Iterator[None]:
        """Seed torch's generators, and leave them as they were."""
        on_gpu = device.type == "cuda"
        with QUIET.resting():
            self._lock.acquire()
        try:
            if on_gpu and self._drawn is not None:
                torch.cuda.current_stream().wait_event(self._drawn)
            with torch.random.fork_rng([device] if on_gpu else []):
                torch.default_generator.manual_seed(seed)
                if on_gpu:
                    torch.cuda.manual_seed(seed)
                yield
            if on_gpu:
                self._drawn = torch.cuda.current_stream().record_event()
        finally:
            self._lock.release()


DRAWING = Drawing()


@dataclass(frozen=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    inputs: torch.Tensor
    targets: torch.Tensor
    mask: torch.Tensor | None


class StepGraphs:
    """Runs a step by graphs; `touched` are the tensors that recording must leave as they were.

    Its random numbers come from a generator of its own, so that many may draw side by side.
    """

    def __init__(self, step: Step, touched: Sequence[torch.Tensor]) -> None:
        self._step = step
        self._touched = touched
        self._recorded: dict[tuple[object, ...], _Recorded] = {}
        self._pool = torch.cuda.graph_pool_handle()  # graphs of one module never run side by side
        # cuBLAS keeps a workspace a stream: modules that are side by side must not share one
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator("cuda")

    @contextmanager
    def randomness(self, key: Key) -> Iterator[None]:
        """Draw by a key."""
        self._generator.manual_seed(key.torch().initial_seed())
        yield

    def run(self, x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor | None) -> None:
        """Take one step on a batch."""
        shape = (x.shape, x.dtype, y.shape, mask is None)
        if shape not in self._recorded:
            with QUIET.alone(), self._as_default(x.device):
                self._recorded[shape] = self._record(x, y, mask)
        recorded = self._recorded[shape]
        recorded.inputs.copy_(x)
        recorded.targets.copy_(y)
        if mask is not None and recorded.mask is not None:
            recorded.mask.copy_(mask)
        recorded.graph.replay()

    def _record(self, x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor | None) -> _Recorded:
        layout = torch.channels_last if x.ndim == 4 else torch.contiguous_format
        inputs = torch.empty_like(x, memory_format=layout).copy_(x)
        targets, mask = y.clone(), None if mask is None else mask.clone()
        before = [tensor.clone() for tensor in self._touched]
        random = self._generator.get_state()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UP):
                self._step(inputs, targets, mask)
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            self._step(inputs, targets, mask)
        for tensor, value in zip(self._touched, before, strict=True):
            tensor.copy_(value)
        self._generator.set_state(random)
        return _Recorded(graph, inputs, targets, mask)

    @contextmanager
    def _as_default(self, device: torch.device) -> Iterator[None]:
        """Have modules draw from this generator; a graph keeps to the one it was recorded with."""
        default = torch.cuda.default_generators[device.index]
        before = default.graphsafe_get_state()
        default.graphsafe_set_state(self._generator)
        try:
            yield
        finally:
            default.graphsafe_set_state(before)
