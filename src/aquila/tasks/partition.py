"""Partitions: which sample goes to which device. A partition is one index tensor a device."""

import torch

from aquila.core.random import Key

Partition = list[torch.Tensor]


def iid(samples: int, devices: int, key: Key) -> Partition:
    """Shuffle the samples and deal them out, as evenly as can be."""
    _check_devices(samples, devices)
    order = torch.randperm(samples, generator=key.torch())
    return [part.sort().values for part in torch.tensor_split(order, devices)]


def by_class(labels: torch.Tensor, devices: int, classes_per_device: int, key: Key) -> Partition:
    """Give each device samples of a few classes only, every class to equally many devices.

    As in HeteroFL: each class is cut into equal parts, and a device gets `classes_per_device`
    parts of different classes.
    """
    _check_devices(len(labels), devices)
    classes = int(labels.max()) + 1
    if not 1 <= classes_per_device <= classes:
        raise ValueError(f"classes a device must be from 1 to {classes}, not {classes_per_device}")
    if devices * classes_per_device % classes:
        raise ValueError(
            f"{devices} devices with {classes_per_device} classes each do not share out "
            f"{classes} classes evenly"
        )
    owners = _owners(classes, devices, classes_per_device, key)
    parts: list[list[torch.Tensor]] = [[] for _ in range(devices)]
    for label in range(classes):
        members = (labels == label).nonzero().flatten()
        shuffled = members[torch.randperm(len(members), generator=key.child(1, label).torch())]
        shares = torch.tensor_split(shuffled, len(owners[label]))
        for device, share in zip(owners[label], shares, strict=True):
            parts[device].append(share)
    return [torch.cat(part).sort().values for part in parts]


def _owners(classes: int, devices: int, classes_per_device: int, key: Key) -> list[list[int]]:
    """Devices of each class: always the classes with the fewest devices so far, ties by lot."""
    owners: list[list[int]] = [[] for _ in range(classes)]
    lots = key.child(0).numpy()
    for device in lots.permutation(devices):
        ranked = sorted(range(classes), key=lambda c: (len(owners[c]), lots.random()))
        for label in ranked[:classes_per_device]:
            owners[label].append(int(device))
    return owners


def _check_devices(samples: int, devices: int) -> None:
    if not 1 <= devices <= samples:
        raise ValueError(f"{samples} samples cannot be shared out to {devices} devices")
