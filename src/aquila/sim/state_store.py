"""Where the states of a fleet are kept: in memory, or in a mapped file where they might not fit.

A run with and without the file has the same bits. The operating system holds as much of the file
in memory as there is room for and reads the rest back when a device's turn comes.
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
from aquila.sim.hardware import memory_bytes

SLOTS_PER_DEVICE = 3
"""States a device may hold at once: before its turn, after it, and to fall back to."""

ALIGNMENT = 64
"""Bytes between the starts of vectors are a multiple of this."""


class StateStore:
    """A file with room for every device's states, most of it never touched.

    A state is written to a place that none of the device's other states uses, so that no turn
    overwrites what it may be taken back to. What was there before is lost. The file has no name, so
    it is gone with the process, however that ends.
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
        """Write a state to the file, beside those in use, and return the copy read from it."""
        if any(state is other for other in in_use):
            return state
        size = self._sizes[self._groups[device]]
        if state_bytes(state) > size:  # it has grown beyond its place
            return state
        self._open()
        begin = self._bytes.data_ptr() + self._offsets[device]
        used = {(v.data_ptr() - begin) // size for other in in_use for v in tensors_of(other)}
        slot = next(slot for slot in range(SLOTS_PER_DEVICE) if slot not in used)
        return self._write_state(state, self._offsets[device] + slot * size)

    def _write_state(self, state: Any, begin: int) -> Any:
        at = begin

        def write(vector: torch.Tensor) -> torch.Tensor:
            nonlocal at
            self._write(vector.detach().contiguous().view(-1).view(torch.uint8).numpy().data, at)
            copy = self._bytes[at : at + vector.nbytes].view(vector.dtype).view(vector.shape)
            at += _align(vector.nbytes)
            return copy

        return map_tensors(state, write)

    def _write(self, content: memoryview, at: int) -> None:
        while content:  # not through the map: there, a full disk would end the process
            written = os.pwrite(self._file, content, at)
            content, at = content[written:], at + written

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
    initial_states: Sequence[Any], fleet: Fleet, limit: int | None, folder: Path | None
) -> StateStore | None:
    """Return a store if the states of all devices could take more than `limit` bytes of memory.

    The default limit is half of the machine's memory. Every device is counted twice, as it is in
    the middle of a turn. States on a GPU stay there.
    """
    if limit is None:
        limit = memory_bytes() // 2
    if limit < 0:
        raise ValueError(f"state_memory must be at least 0 bytes, not {limit}")
    vectors = [vector for state in initial_states for vector in tensors_of(state)]
    if not vectors or any(vector.device.type != "cpu" for vector in vectors):
        return None
    sizes = [state_bytes(state) for state in initial_states]
    whole = 2 * sum(sizes[group] for group in fleet.groups)
    return StateStore(initial_states, fleet.groups, folder) if whole > limit else None


def state_bytes(state: Any) -> int:
    """Return what the tensors of a state take in the file."""
    return sum(_align(vector.nbytes) for vector in tensors_of(state))


def _align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
