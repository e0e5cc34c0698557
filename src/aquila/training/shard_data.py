"""Where the samples of a shard come from: tensors, a `Dataset` or a `DataLoader`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any, TypeVar

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, default_collate

from aquila.core.random import Key
from aquila.training.batch_conversion import as_batch, as_sample
from aquila.training.inputs import Batch, Inputs, concatenate, count_samples, parts_of, take_samples

Prepare = Callable[[str, Batch], Batch]
"""(name, batch) -> the batch, checked and on the device of the model"""

T = TypeVar("T")


@dataclass(frozen=True)
class TensorData:
    """Samples in memory, on the device of the model."""

    name: str
    batch: Batch

    @property
    def samples(self) -> int:
        """Number of samples."""
        return count_samples(self.batch[0])

    def take(self, part: slice) -> Batch:
        """Return some samples, in their order."""
        return take_samples(self.batch, part)

    def minibatches(self, size: int | None, key: Key) -> Iterator[tuple[Key, Batch]]:
        """Yield the minibatches of an epoch, each with a key of its own."""
        if size is None or size >= self.samples:
            yield key, self.batch
            return
        device = next(iter(parts_of(self.batch[0]).values())).device
        order = torch.randperm(
            self.samples, generator=key.torch(), pin_memory=device.type == "cuda"
        )
        order = order.to(device, non_blocking=True)
        for number, part in enumerate(torch.split(order, size)):
            yield key.child(number), take_samples(self.batch, part)


@dataclass(frozen=True)
class DatasetData:
    """Samples that a map-style `Dataset` reads when they are needed.

    torch's generator is seeded from the key while samples are read, for random transforms.
    """

    name: str
    dataset: Any
    prepare: Prepare
    dtype: torch.dtype

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.dataset)

    def take(self, part: slice) -> Batch:
        """Read some samples, in their order."""
        numbers = list(range(*part.indices(self.samples)))
        return self._read(numbers, Key((0, *numbers[:1])))

    def minibatches(self, size: int | None, key: Key) -> Iterator[tuple[Key, Batch]]:
        """Yield the minibatches of an epoch: the same samples as if they were in memory."""
        if size is None or size >= self.samples:
            yield key, self._read(list(range(self.samples)), key)
            return
        order = torch.randperm(self.samples, generator=key.torch())
        for number, part in enumerate(torch.split(order, size)):
            own = key.child(number)
            yield own, self._read(part.tolist(), own)

    def _read(self, numbers: list[int], key: Key) -> Batch:
        with _seeded(key):
            if hasattr(self.dataset, "__getitems__"):
                found = self.dataset.__getitems__(numbers)
            else:
                found = [self.dataset[number] for number in numbers]
        samples = [as_sample(self.name, sample, self.dtype) for sample in found]
        try:
            stacked = default_collate(samples)
        except (TypeError, RuntimeError) as error:
            raise ValueError(
                f"{self.name} is a Dataset whose samples do not stack to a batch: "
                f"{str(error).splitlines()[0]}"
            ) from error
        return self.prepare(self.name, as_batch(self.name, stacked, self.dtype))


@dataclass(frozen=True)
class LoaderData:
    """Samples that a `DataLoader` yields in its own batches; an epoch is one pass.

    The generator of the loader and torch's generator are seeded from the key.
    """

    name: str
    loader: "DataLoader[Any]"
    prepare: Prepare
    dtype: torch.dtype

    @property
    def samples(self) -> int | None:
        """Number of samples in one pass; None if the loader does not tell, as for many streams."""
        loader, batches = self.loader, self.loader.batch_sampler
        if not isinstance(batches, BatchSampler):  # its batches can have any size
            return None
        is_stream = isinstance(loader.dataset, IterableDataset)
        source: Any = loader.dataset if is_stream else batches.sampler
        try:
            count = len(source)
        except (AttributeError, NotImplementedError, TypeError):
            return None
        return count - count % batches.batch_size if batches.drop_last else count

    def minibatches(self, size: int | None, key: Key) -> Iterator[tuple[Key, Batch]]:
        """Yield the batches of one pass; `size` does not apply."""
        if isinstance(self.loader.generator, torch.Generator):
            self.loader.generator.manual_seed(key.torch().initial_seed())
        with _seeded(key):
            batches = iter(self.loader)
        for number in count():
            own = key.child(number)
            with _seeded(own):
                given = next(batches, None)
            if given is None:
                break
            yield own, self.prepare(self.name, as_batch(self.name, given, self.dtype))
        if number == 0:
            raise ValueError(f"{self.name} is a DataLoader that yields no batch")


ShardData = TensorData | DatasetData | LoaderData


def in_order(data: ShardData, size: int) -> Iterator[Batch]:
    """Yield all samples in their order; a loader yields its own batches."""
    if isinstance(data, LoaderData):
        yield from (batch for _, batch in data.minibatches(None, Key((0,))))
        return
    for start in range(0, data.samples, size):
        yield data.take(slice(start, start + size))


def equal_batches(pool: Sequence[ShardData], most: int) -> Iterator[Inputs]:
    """Yield the inputs of all shards, in as few batches of nearly equal size as possible.

    A loader yields its own batches, and then no batch holds samples of several shards.
    """
    if any(isinstance(data, LoaderData) for data in pool) or not _have_one_shape(pool):
        for data in pool:
            if isinstance(data, LoaderData):
                yield from (x for x, _ in in_order(data, most))
            else:
                yield from equal_batches([data], most)
        return
    starts = [0]
    for data in pool:
        starts.append(starts[-1] + (data.samples or 0))
    batches = -(-starts[-1] // most)
    size, larger = divmod(starts[-1], batches)
    ends = [number * size + min(number, larger) for number in range(batches + 1)]
    for begin, end in pairwise(ends):
        parts = []
        for data, start in zip(pool, starts, strict=False):
            part = slice(max(begin - start, 0), min(end - start, data.samples or 0))
            if part.start < part.stop and not isinstance(data, LoaderData):
                parts.append(data.take(part)[0])
        yield concatenate(parts)


def _have_one_shape(pool: Sequence[ShardData]) -> bool:
    """Whether the first samples of all shards have the same shapes."""
    if len(pool) == 1:
        return True
    first = (data.take(slice(1))[0] for data in pool if not isinstance(data, LoaderData))
    return len({tuple(part.shape for part in parts_of(x).values()) for x in first}) <= 1


@contextmanager
def _seeded(key: Key) -> Iterator[None]:
    """Seed torch's generator on the CPU from the key, and restore it at the end."""
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(key.torch().initial_seed())
        yield
