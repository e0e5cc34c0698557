"""Split samples of a user among devices."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, Subset

from aquila.core.parameter import check_whole_number
from aquila.core.random import Key, Purpose
from aquila.tasks.partition import split_labels
from aquila.training.batch_conversion import describe

IN_MEMORY = (torch.Tensor, np.ndarray, tuple, list, Mapping)


def split(inputs: Any, targets: Any, devices: int, spec: str = "iid", *, seed: int = 0) -> Any:
    """Split samples among devices; return a list of shards for `problem`.

    Every sample goes to exactly one device, and every device gets at least one sample. The same
    arguments always give the same shards.

    Args:
        inputs: A tensor, a NumPy array, a tuple or dict of these, or a map-style `Dataset`.
        targets: The target of each sample, as a tensor, an array or a list. None: the attribute
            `targets` of a `Dataset`, or the entry `labels` of a dict.
        devices: Number of devices.
        spec: `iid`; `classes:2`, two classes per device; `dirichlet:0.5`, each class by
            proportions from a Dirichlet distribution; `unequal:1`, sizes whose logarithm has this
            standard deviation; or `blocks:100`, whole blocks of neighbouring samples.
        seed: Seed of the split.

    Returns:
        Per device a pair of inputs and targets, a dict if the targets are its labels, or a `Subset`
        of the `Dataset`.
    """
    check_whole_number("devices", devices, 1)
    check_whole_number("seed", seed, 0)
    if not isinstance(spec, str):
        raise TypeError(f"spec must be text such as dirichlet:0.5, not {spec!r}")
    in_memory = isinstance(inputs, IN_MEMORY)
    if not in_memory and (isinstance(inputs, IterableDataset) or not hasattr(inputs, "__len__")):
        raise TypeError(
            f"split takes tensors, NumPy arrays or a map-style Dataset, not {describe(inputs)}"
        )
    labels = _labels(inputs, targets, _count(inputs))
    classes = labels if labels.is_floating_point() else _numbered(labels)
    parts = split_labels(spec, classes, devices, Key((seed, Purpose.SPLIT)))
    if not in_memory:
        return [Subset(inputs, part.tolist()) for part in parts]
    if targets is None:
        return [_take(inputs, part) for part in parts]
    kept = labels if isinstance(targets, tuple | list) else targets
    return [(_take(inputs, part), _take(kept, part)) for part in parts]


def _labels(inputs: Any, targets: Any, samples: int) -> torch.Tensor:
    """Return the target of each sample as a tensor."""
    found = targets
    if targets is None:
        name = "labels" if isinstance(inputs, Mapping) else "targets"
        found = inputs.get(name) if isinstance(inputs, Mapping) else getattr(inputs, name, None)
        if found is None:
            raise ValueError(
                f"split needs targets, and {describe(inputs)} has no {name}; pass the target of "
                "each sample"
            )
    try:
        labels = found if isinstance(found, torch.Tensor) else torch.as_tensor(np.array(found))
    except TypeError:
        raise TypeError(
            "split needs targets that are numbers; number your classes from 0"
        ) from None
    if len(labels) != samples:
        raise ValueError(f"split got {samples} inputs and {len(labels)} targets")
    return labels.cpu()


def _numbered(labels: torch.Tensor) -> torch.Tensor:
    """Number the classes from 0; a user's classes may be any integers."""
    numbers: torch.Tensor = torch.unique(labels, return_inverse=True)[1]
    return numbers


def _count(inputs: Any) -> int:
    """Return the number of samples; ValueError if the parts of the inputs differ in length."""
    if not isinstance(inputs, Mapping | tuple | list):
        return len(inputs)
    lengths = list(map(len, inputs.values() if isinstance(inputs, Mapping) else inputs))
    if len(set(lengths)) != 1:
        raise ValueError(f"split got inputs of the lengths {', '.join(map(str, lengths))}")
    return lengths[0]


def _take(values: Any, part: torch.Tensor) -> Any:
    if isinstance(values, Mapping):
        return {name: _take(value, part) for name, value in values.items()}
    if isinstance(values, tuple | list):
        return tuple(_take(value, part) for value in values)
    return values[part.numpy() if isinstance(values, np.ndarray) else part.to(values.device)]
