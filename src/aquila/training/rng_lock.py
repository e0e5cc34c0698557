"""torch's global random generators, used by one model at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from aquila.training.cuda_graph import CAPTURE_LOCK


class RngLock:
    """Lets one model at a time draw random numbers, because torch has one global generator.

    On a GPU the work of the next model is queued behind that of the last one, so no host thread
    waits for the GPU.
    """

    def __init__(self) -> None:
        # reentrant, because reading a batch within a turn may run the module to check its outputs
        self._lock = threading.RLock()
        self._last_use: torch.cuda.Event | None = None

    @contextmanager
    def seeded(self, seed: int, device: torch.device) -> Iterator[None]:
        """Seed torch's generators, and restore them at the end."""
        on_gpu = device.type == "cuda"
        with CAPTURE_LOCK.released():
            self._lock.acquire()
        try:
            if on_gpu and self._last_use is not None:
                torch.cuda.current_stream().wait_event(self._last_use)
            with torch.random.fork_rng([device] if on_gpu else []):
                torch.default_generator.manual_seed(seed)
                if on_gpu:
                    torch.cuda.manual_seed(seed)
                yield
            if on_gpu:
                self._last_use = torch.cuda.current_stream().record_event()
        finally:
            self._lock.release()


RNG_LOCK = RngLock()


def generator_state(device: torch.device) -> torch.Tensor:
    """Return the state of the generators that a module on this device may draw from."""
    on_cpu = torch.default_generator.get_state()
    if device.type != "cuda":
        return on_cpu
    return torch.cat([on_cpu, torch.cuda.get_rng_state(device)])
