"""Partitions: which device gets which samples. A partition is one index tensor per device.

Every sample goes to exactly one device, and every device gets at least one sample.
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch

from aquila.core.parameter import spelling_hint
from aquila.core.random import Key
from aquila.tasks.dataset import Dataset

Partition = list[torch.Tensor]

MAX_ALPHA = 1e6
MAX_SPREAD = 100.0


def iid(samples: int, devices: int, key: Key) -> Partition:
    """Shuffle the samples and split them as evenly as possible."""
    _check_devices(samples, devices)
    order = torch.randperm(samples, generator=key.torch())
    return [part.sort().values for part in torch.tensor_split(order, devices)]


def by_class(labels: torch.Tensor, devices: int, classes_per_device: int, key: Key) -> Partition:
    """Give each device samples of a few classes, and each class to equally many devices.

    As in HeteroFL, each class is cut into equal parts. A device gets one part of
    `classes_per_device` different classes.
    """
    _check_devices(len(labels), devices)
    classes = int(labels.max()) + 1
    if not 1 <= classes_per_device <= classes:
        raise ValueError(
            f"classes per device must be from 1 to {classes}, not {classes_per_device}"
        )
    if devices * classes_per_device % classes:
        raise ValueError(
            f"{devices} devices with {classes_per_device} classes each cannot split {classes} "
            f"classes evenly; devices x classes must be a multiple of {classes}"
        )
    devices_of = _devices_of_each_class(classes, devices, classes_per_device, key)
    parts: list[list[torch.Tensor]] = [[] for _ in range(devices)]
    for label in range(classes):
        members = (labels == label).nonzero().flatten()
        shuffled = members[torch.randperm(len(members), generator=key.child(1, label).torch())]
        pieces = torch.tensor_split(shuffled, len(devices_of[label]))
        for device, piece in zip(devices_of[label], pieces, strict=True):
            parts[device].append(piece)
    partition = [torch.cat(part).sort().values for part in parts]
    if not all(map(len, partition)):
        raise ValueError(
            f"{len(labels)} samples are too few: some of the {devices} devices would get none"
        )
    return partition


def dirichlet(labels: torch.Tensor, devices: int, alpha: float, key: Key) -> Partition:
    """Split each class by proportions from a Dirichlet distribution (arXiv 1909.06335).

    With a smaller alpha, fewer devices hold most of a class. A device without samples gets one
    sample from the device that has the most.
    """
    _check_devices(len(labels), devices)
    if not 0 < alpha <= MAX_ALPHA:
        raise ValueError(f"dirichlet: alpha must be > 0 and <= {MAX_ALPHA:g}, not {alpha:g}")
    parts: list[list[int]] = [[] for _ in range(devices)]
    for label in _distinct(labels):
        rng = key.child(label).numpy()
        members = rng.permutation((labels == label).nonzero().flatten().numpy())
        proportions = rng.dirichlet([alpha] * devices)
        cuts = (proportions.cumsum()[:-1] * len(members)).round().astype(int)
        for part, start, end in zip(parts, [0, *cuts], [*cuts, len(members)], strict=True):
            part.extend(members[start:end].tolist())
    for part in parts:
        if not part:
            part.append(max(parts, key=len).pop())
    return [torch.tensor(part).sort().values for part in parts]


def by_user(users: torch.Tensor, devices: int, key: Key) -> Partition:
    """Give each device all samples of some users, as evenly as possible by number of users.

    `users` holds the user of every sample.
    """
    names = torch.tensor(_distinct(users))
    if not 1 <= devices <= len(names):
        raise ValueError(f"{len(names)} users cannot be split among {devices} devices")
    groups = iid(len(names), devices, key)
    return [torch.isin(users, names[group]).nonzero().flatten() for group in groups]


def blocks(samples: int, devices: int, count: int, key: Key) -> Partition:
    """Cut the samples, in their order, into equal blocks, and give whole blocks to devices."""
    if not devices <= count <= samples:
        raise ValueError(
            f"blocks must be from {devices} (one per device) to {samples} (one per sample), "
            f"not {count}"
        )
    return by_user(torch.arange(samples) * count // samples, devices, key)


def unequal(samples: int, devices: int, key: Key, spread: float = 1.0) -> Partition:
    """Shuffle the samples and split them into parts with log-normal sizes.

    `spread` is the standard deviation of the logarithm. 0 makes all parts equal.
    """
    _check_devices(samples, devices)
    if not 0 <= spread <= MAX_SPREAD:
        raise ValueError(f"unequal: spread must be from 0 to {MAX_SPREAD:g}, not {spread:g}")
    generator = key.child(0).torch()
    weights = torch.randn(devices, generator=generator, dtype=torch.float64).mul(spread).exp()
    # one sample per device, and the rest in proportion to the weights
    ends = (weights.cumsum(0) / weights.sum() * (samples - devices)).round().long()
    ends += torch.arange(1, devices + 1)
    order = torch.randperm(samples, generator=key.child(1).torch())
    return [part.sort().values for part in torch.tensor_split(order, ends[:-1])]


Rule = Callable[[torch.Tensor, int, float, Key], Partition]
"""(labels, devices, number, key) -> partition"""

RULES: dict[str, tuple[str, Rule]] = {
    "iid": ("iid", lambda y, devices, _, key: iid(len(y), devices, key)),
    "classes": ("classes:COUNT", lambda y, devices, n, key: by_class(y, devices, int(n), key)),
    "dirichlet": ("dirichlet:ALPHA", dirichlet),
    "unequal": ("unequal:SPREAD", lambda y, devices, n, key: unequal(len(y), devices, key, n)),
    "blocks": ("blocks:COUNT", lambda y, devices, n, key: blocks(len(y), devices, int(n), key)),
}


def split(spec: str, dataset: Dataset, devices: int, key: Key) -> Partition:
    """Split the training samples by a rule such as iid, classes:2 or dirichlet:0.5."""
    return split_labels(spec, dataset.train[1], devices, key)


def split_labels(spec: str, labels: torch.Tensor, devices: int, key: Key) -> Partition:
    """Split samples with these labels by a rule such as iid, classes:2 or dirichlet:0.5."""
    name, rule, number = parse_split(spec)
    if name in ("classes", "dirichlet"):
        if labels.ndim > 1:
            raise ValueError(
                f"split {spec!r} needs one class per sample, but texts have no classes"
            )
        if labels.is_floating_point():
            raise ValueError(f"split {spec!r} needs classes, but the targets are {labels.dtype}")
    return rule(labels, devices, number, key)


def parse_split(spec: str) -> tuple[str, Rule, float]:
    """Return the name, the rule and the number of a split; ValueError lists the known forms."""
    name, _, text = spec.partition(":")
    forms = [form for form, _ in RULES.values()]
    if name not in RULES:
        raise ValueError(f"there is no split {spec!r}{spelling_hint(spec, forms)}")
    form, rule = RULES[name]
    try:
        number = (int if form.endswith("COUNT") else float)(text) if ":" in form else 0
    except ValueError:
        number = None
    if number is None or (":" in spec) != (":" in form):
        raise ValueError(f"split {spec!r} is not of the form {form}. Known: {', '.join(forms)}")
    return name, rule, number


def partition_content(parts: Partition) -> bytes:
    """Return a partition as the content of a JSON file: a list with the device of every sample."""
    order = torch.cat(parts)
    if not torch.equal(order.sort().values, torch.arange(len(order))):
        raise ValueError("the partition must contain every sample exactly once")
    device_of_sample = torch.empty_like(order)
    for device, part in enumerate(parts):
        device_of_sample[part] = device
    content = {"device_of_sample": device_of_sample.tolist()}
    return json.dumps(content, separators=(",", ":")).encode()


def load_partition(path: Path) -> Partition:
    """Read a file with the content of a partition. ValueError for any other file."""
    try:
        device_of_sample = json.loads(path.read_text())["device_of_sample"]
        devices = sorted(set(device_of_sample))
    except (ValueError, KeyError, TypeError, RecursionError):
        devices = []
    if not devices or devices != list(range(len(devices))):
        raise ValueError(f"{path} does not hold a partition")
    numbers = torch.tensor(device_of_sample)
    return [(numbers == device).nonzero().flatten() for device in devices]


def class_counts(labels: torch.Tensor, parts: Partition, classes: int) -> list[list[int]]:
    """Return the number of samples per device and class."""
    return [torch.bincount(labels[part], minlength=classes).tolist() for part in parts]


def _devices_of_each_class(
    classes: int, devices: int, classes_per_device: int, key: Key
) -> list[list[int]]:
    """Assign devices to classes: the classes with the fewest devices first, ties at random."""
    devices_of: list[list[int]] = [[] for _ in range(classes)]
    rng = key.child(0).numpy()
    for device in rng.permutation(devices):
        ranked = sorted(range(classes), key=lambda c: (len(devices_of[c]), rng.random()))
        for label in ranked[:classes_per_device]:
            devices_of[label].append(int(device))
    return devices_of


def _distinct(numbers: torch.Tensor) -> list[int]:
    return sorted(set(numbers.tolist()))


def _check_devices(samples: int, devices: int) -> None:
    if not 1 <= devices <= samples:
        raise ValueError(f"{samples} samples cannot be split among {devices} devices")
