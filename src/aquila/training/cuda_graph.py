"""CUDA graphs of a training step: captured once per batch shape, then replayed."""

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from aquila.core.random import Key

WARM_UP_STEPS = 3
"""Steps before a capture, in which libraries choose algorithms and allocate memory."""

Step = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], None]
"""(inputs, targets, class mask) -> None; takes one step in place"""


class CaptureLock:
    """Keeps GPU work of other threads out of a graph capture, as CUDA requires."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._holders = 0
        self._local = threading.local()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the lock for work that may overlap with other work, but not with a capture."""
        self._change_holders(+1)
        self._local.holding = True
        try:
            yield
        finally:
            self._local.holding = False
            self._change_holders(-1)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock for a capture: wait for other work, and let new work wait."""
        own = int(getattr(self._local, "holding", False))
        with self._condition:
            self._holders -= own
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._holders == 0)
            try:
                yield
            finally:
                self._holders += own

    @contextmanager
    def released(self) -> Iterator[None]:
        """Release the shared lock for a while, so that others can capture."""
        own = int(getattr(self._local, "holding", False))
        self._change_holders(-own)
        try:
            yield
        finally:
            self._change_holders(+own)

    def _change_holders(self, change: int) -> None:
        with self._condition:
            self._holders += change
            self._condition.notify_all()


CAPTURE_LOCK = CaptureLock()


@dataclass(frozen=True)
class _CapturedStep:
    graph: torch.cuda.CUDAGraph
    inputs: torch.Tensor
    targets: torch.Tensor
    mask: torch.Tensor | None


class StepGraphs:
    """Runs a step by CUDA graphs; a capture restores the tensors in `mutated`.

    Each instance has its own random generator, so several can draw at the same time.
    """

    def __init__(self, step: Step, mutated: Sequence[torch.Tensor]) -> None:
        self._step = step
        self._mutated = mutated
        self._captured: dict[tuple[object, ...], _CapturedStep] = {}
        self._pool = torch.cuda.graph_pool_handle()  # graphs of one module never overlap
        # cuBLAS has one workspace per stream: concurrent modules must not share a stream
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator("cuda")

    @contextmanager
    def seeded(self, key: Key) -> Iterator[None]:
        """Seed the generator from a key."""
        self._generator.manual_seed(key.torch().initial_seed())
        yield

    def run(self, x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor | None) -> None:
        """Take one step on a batch."""
        shape = (x.shape, x.dtype, y.shape, mask is None)
        if shape not in self._captured:
            with CAPTURE_LOCK.exclusive(), self._as_default_generator(x.device):
                self._captured[shape] = self._capture(x, y, mask)
        captured = self._captured[shape]
        captured.inputs.copy_(x)
        captured.targets.copy_(y)
        if mask is not None and captured.mask is not None:
            captured.mask.copy_(mask)
        captured.graph.replay()

    def _capture(
        self, x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor | None
    ) -> _CapturedStep:
        layout = torch.channels_last if x.ndim == 4 else torch.contiguous_format
        inputs = torch.empty_like(x, memory_format=layout).copy_(x)
        targets, mask = y.clone(), None if mask is None else mask.clone()
        before = [tensor.clone() for tensor in self._mutated]
        generator_state = self._generator.get_state()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UP_STEPS):
                self._step(inputs, targets, mask)
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        capture = torch.cuda.graph(graph, pool=self._pool, stream=self._stream)
        with _without_garbage_collection(), capture:
            self._step(inputs, targets, mask)
        for tensor, value in zip(self._mutated, before, strict=True):
            tensor.copy_(value)
        self._generator.set_state(generator_state)
        return _CapturedStep(graph, inputs, targets, mask)

    @contextmanager
    def _as_default_generator(self, device: torch.device) -> Iterator[None]:
        """Let modules draw from this generator; a graph keeps the generator of its capture."""
        default = torch.cuda.default_generators[device.index]
        before = default.graphsafe_get_state()
        default.graphsafe_set_state(self._generator)
        try:
            yield
        finally:
            default.graphsafe_set_state(before)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Collect no cycles: freeing another graph during a capture would invalidate the capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
