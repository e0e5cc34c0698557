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
from aquila.core.state import vectors_of, with_vectors
from aquila.sim.hardware import memory_bytes

PLACES = 3
"""States a device may hold at once: before its turn, after it, and to fall back to."""

ALIGNMENT = 64
"""Bytes between the starts of vectors are a multiple of this."""


class StateStore:
    """A file with room for every device's states, most of it never touched.

    A state is written to a place that none of the device's other states uses, so that no turn
    overwrites what it may be taken back to. What was there before is lost. The file has no name, so
    it is gone with the process, however that ends.
    """

    def __init__(self, starts: Sequence[Any], groups: Sequence[int], folder: Path | None) -> None:
        self._sizes = [bytes_of(start) for start in starts]
        self._groups = groups
        self._begins = [0, *accumulate(PLACES * self._sizes[group] for group in groups)]
        self._folder = folder
        self._lock = threading.Lock()
        self._file = -1
        self._bytes = torch.empty(0, dtype=torch.uint8)

    def keep(self, device: DeviceId, state: Any, *held: Any) -> Any:
        """Write a state to the file, beside those still held, and return it as read from there."""
        if any(state is other for other in held):
            return state
        size = self._sizes[self._groups[device]]
        if bytes_of(state) > size:  # it has grown beyond its place
            return state
        self._open()
        begin = self._bytes.data_ptr() + self._begins[device]
        used = {(v.data_ptr() - begin) // size for other in held for v in vectors_of(other)}
        place = next(place for place in range(PLACES) if place not in used)
        return self._written(state, self._begins[device] + place * size)

    def _written(self, state: Any, begin: int) -> Any:
        at = begin

        def write(vector: torch.Tensor) -> torch.Tensor:
            nonlocal at
            self._write(vector.detach().contiguous().view(-1).view(torch.uint8).numpy().data, at)
            copy = self._bytes[at : at + vector.nbytes].view(vector.dtype).view(vector.shape)
            at += _aligned(vector.nbytes)
            return copy

        return with_vectors(state, write)

    def _write(self, content: memoryview, at: int) -> None:
        while content:  # not through the map: there, a full disk would end the process
            written = os.pwrite(self._file, content, at)
            content, at = content[written:], at + written

    def _open(self) -> None:
        with self._lock:
            if self._file >= 0:
                return
            with tempfile.TemporaryFile(dir=self._folder) as file:
                file.truncate(self._begins[-1])
                mapped = mmap.mmap(file.fileno(), self._begins[-1])
                self._bytes = torch.frombuffer(mapped, dtype=torch.uint8)
                self._file = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._file)


def store_for(
    starts: Sequence[Any], fleet: Fleet, limit: int | None, folder: Path | None
) -> StateStore | None:
    """Return a store if the states of all devices could take more than `limit` bytes of memory.

    The default limit is half of the machine's memory. Every device is counted twice, as it is in
    the middle of a turn. States on a GPU stay there.
    """
    if limit is None:
        limit = memory_bytes() // 2
    if limit < 0:
        raise ValueError(f"state_memory must be at least 0 bytes, not {limit}")
    vectors = [vector for start in starts for vector in vectors_of(start)]
    if not vectors or any(vector.device.type != "cpu" for vector in vectors):
        return None
    sizes = [bytes_of(start) for start in starts]
    whole = 2 * sum(sizes[group] for group in fleet.groups)
    return StateStore(starts, fleet.groups, folder) if whole > limit else None


def bytes_of(state: Any) -> int:
    """Return what the tensors of a state take in the file."""
    return sum(_aligned(vector.nbytes) for vector in vectors_of(state))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
