"""Device states in a memory-mapped file, for fleets whose states may not fit into memory.

A run has the same bits with and without the file. The operating system caches as much of the file
in memory as fits, and reads the rest back when a device takes its turn.
"""

import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.state import map_tensors, tensors_of
from aquila.runtime.options import RunOptions
from aquila.sim.hardware import memory_bytes

SLOTS_PER_DEVICE = 3
"""States per device at once: before its turn, after it, and the state to roll back to."""

ALIGNMENT = 64
"""Vectors start at multiples of this number of bytes."""


class StateStore:
    """A sparse file with slots for the states of every device.

    A state is written to a slot that none of the device's states in use occupies, so no turn
    overwrites a state that the device may roll back to. The file is unlinked, so it disappears
    when the process ends.
    """

    def __init__(
        self, initial_states: Sequence[Any], groups: Sequence[int], folder: Path | None
    ) -> None:
        self._sizes = [state_bytes(state) for state in initial_states]
        self._groups = groups
        self._offsets = [0, *accumulate(SLOTS_PER_DEVICE * self._sizes[group] for group in groups)]
        self._folder = folder
        self._lock = threading.Lock()
        self._file = -1
        self._bytes = torch.empty(0, dtype=torch.uint8)

    def save(self, device: DeviceId, state: Any, *in_use: Any) -> Any:
        """Write a state to a free slot, and return the copy mapped from the file."""
        if any(state is other for other in in_use):
            return state
        size = self._sizes[self._groups[device]]
        if state_bytes(state) > size:  # it has outgrown its slot
            return state
        self._open()
        begin = self._bytes.data_ptr() + self._offsets[device]
        used = {(v.data_ptr() - begin) // size for other in in_use for v in tensors_of(other)}
        slot = next(slot for slot in range(SLOTS_PER_DEVICE) if slot not in used)
        return self._write_state(state, self._offsets[device] + slot * size)

    def _write_state(self, state: Any, offset: int) -> Any:
        def write(vector: torch.Tensor) -> torch.Tensor:
            nonlocal offset
            content = vector.detach().contiguous().view(-1).view(torch.uint8).numpy().data
            self._write(content, offset)
            stored = self._bytes[offset : offset + vector.nbytes]
            offset += _align(vector.nbytes)
            return stored.view(vector.dtype).view(vector.shape)

        return map_tensors(state, write)

    def _write(self, content: memoryview, offset: int) -> None:
        while content:  # writing to the map would kill the process if the disk is full
            written = os.pwrite(self._file, content, offset)
            content, offset = content[written:], offset + written

    def _open(self) -> None:
        with self._lock:
            if self._file >= 0:
                return
            with tempfile.TemporaryFile(dir=self._folder) as file:
                file.truncate(self._offsets[-1])
                mapped = mmap.mmap(file.fileno(), self._offsets[-1])
                self._bytes = torch.frombuffer(mapped, dtype=torch.uint8)
                self._file = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._file)


def make_state_store(
    initial_states: Sequence[Any], fleet: Fleet, options: RunOptions
) -> StateStore | None:
    """Return a store if the states of all devices could exceed `options.state_memory`.

    Each device counts twice, because it holds two states in the middle of a turn. States on a GPU
    stay there. The file is in `options.out`, or in the folder for temporary files.
    """
    limit = options.state_memory * 2**20 or memory_bytes() // 2
    folder = None if options.out is None else Path(options.out)
    vectors = [vector for state in initial_states for vector in tensors_of(state)]
    if not vectors or any(vector.device.type != "cpu" for vector in vectors):
        return None
    sizes = [state_bytes(state) for state in initial_states]
    total = 2 * sum(sizes[group] for group in fleet.groups)
    return StateStore(initial_states, fleet.groups, folder) if total > limit else None


def state_bytes(state: Any) -> int:
    """Return the bytes that the tensors of a state take in the file."""
    return sum(_align(vector.nbytes) for vector in tensors_of(state))


def _align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
