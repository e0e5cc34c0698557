"""Short digests of the devices' data, so that a run is not resumed with other data."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from aquila.runtime.fingerprint import SHARDS

MAX_BYTES = 4 * 2**20
"""A larger tensor is represented by its shape and by rows of this total size."""
UNKNOWN = "-"
"""Digest of a device that does not tell its data, such as a plain function."""


def data_digest(data: object) -> str:
    """Return eight hexadecimal digits that identify tensors, numbers, or containers of them."""
    hasher = hashlib.sha256()
    for part in _parts(data):
        hasher.update(part)
    return hasher.hexdigest()[:8]


def shard_digests(shards: Sequence[object]) -> list[str]:
    """Return the digest of each device's data, or `UNKNOWN`."""
    return [str(getattr(shard, "digest", UNKNOWN)) for shard in shards]


def describe_shards(shards: Sequence[object]) -> str:
    """Return the line of a fingerprint that identifies the data of each device."""
    return " ".join((SHARDS, *shard_digests(shards)))


def _parts(data: object) -> Iterator[Any]:
    if isinstance(data, np.ndarray):
        data = torch.from_numpy(data)
    if isinstance(data, torch.Tensor):
        yield f"{tuple(data.shape)} {data.dtype}".encode()
        rows = _sample_rows(data).detach().cpu().contiguous()
        yield rows.reshape(-1).view(torch.uint8).numpy()
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield str(key).encode()
            yield from _parts(value)
    elif isinstance(data, tuple | list):
        yield f"{len(data)} parts".encode()
        for value in data:
            yield from _parts(value)
    else:
        yield repr(data).encode()


def _sample_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return evenly spaced rows, the first and the last among them; all rows if they are few."""
    size = tensor.numel() * tensor.element_size()
    if size <= MAX_BYTES or len(tensor) < 2:
        return tensor
    count = max(2, MAX_BYTES * len(tensor) // size)
    chosen = torch.linspace(0, len(tensor) - 1, count, dtype=torch.float64).round().long()
    return tensor[chosen.to(tensor.device)]
