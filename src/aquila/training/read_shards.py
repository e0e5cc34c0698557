"""Read the shards of a problem: pairs or dicts of tensors, data sets and loaders."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from aquila.core.random import Key
from aquila.training.batch_conversion import FORMS, as_batch, describe
from aquila.training.flat_module import FlatModule
from aquila.training.losses import ClassLayout
from aquila.training.sample_checker import SampleChecker
from aquila.training.shard_data import DatasetData, LoaderData, ShardData, TensorData

Shard = Any
"""A pair of inputs and targets, a dict of inputs, a `Dataset` or a `DataLoader`."""


def read_shards(
    shards: Sequence[Shard],
    test: Shard | None,
    models: Sequence[FlatModule],
    batch_size: int | None,
) -> tuple[list[ShardData], ShardData | None]:
    """Return the data of each device and the test data; ValueError names what is wrong.

    The models learn from the data what their outputs look like and which targets are ignored.
    """
    if not isinstance(shards, Sequence):
        raise TypeError(
            f"shards must be a list of pairs of tensors, inputs and targets, one per device, not "
            f"{type(shards).__name__}"
        )
    if not shards:
        raise ValueError("a problem needs at least one shard of data")
    if batch_size is not None and all(isinstance(shard, DataLoader) for shard in shards):
        raise ValueError("batch_size must be None if all shards are DataLoaders, which have one")
    names = {f"shard {number}": shard for number, shard in enumerate(shards)}
    if test is not None:
        names["test"] = test
    check, dtype = SampleChecker(models), models[0].theta.dtype
    data = [_read(name, shard, check, dtype, batch_size) for name, shard in names.items()]
    for model in models:
        _find_ignored_targets(model, data)
    return data[: len(shards)], None if test is None else data[-1]


def _read(
    name: str, given: Shard, check: SampleChecker, dtype: torch.dtype, batch_size: int | None
) -> ShardData:
    if isinstance(given, IterableDataset):
        if batch_size is None:
            raise ValueError(f"{name} is an IterableDataset, which needs a batch_size")
        given = DataLoader(given, batch_size)
    if isinstance(given, DataLoader):
        loader = LoaderData(name, given, check, dtype)
        next(loader.minibatches(None, Key((0,))))
        return loader
    if not _is_dataset(name, given):
        return TensorData(name, check(name, as_batch(name, given, dtype)))
    dataset = DatasetData(name, given, check, dtype)
    if dataset.samples == 0:
        raise ValueError(f"{name} is a Dataset without samples")
    dataset.take(slice(2))
    return dataset


def _is_dataset(name: str, given: object) -> bool:
    """Whether an object is a map-style data set, of torch or of another package."""
    if isinstance(given, torch.Tensor | np.ndarray | tuple | list | str | bytes | Mapping):
        return False
    if not hasattr(given, "__getitem__"):
        return False
    if not hasattr(given, "__len__"):
        raise ValueError(f"{name} must be {FORMS}, but {describe(given)} has no length")
    return True


def _find_ignored_targets(model: FlatModule, data: Sequence[ShardData]) -> None:
    """Let a model leave out ignored targets, if there are some or if they are not known yet."""
    objective = model.objective
    if not objective.has_targets:
        return
    targets = [part.batch[1] for part in data if isinstance(part, TensorData)]
    known = [y for y in targets if y is not None]
    objective.class_layout = ClassLayout.of(objective.loss, known, len(known) < len(data))
