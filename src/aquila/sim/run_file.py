"""What a run folder says about its run: `run.json`, and the split of the data."""

from __future__ import annotations

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from aquila.core.fleet import Fleet
from aquila.core.method import Method
from aquila.core.parameter import Value
from aquila.runtime.files import atomic_write
from aquila.runtime.options import RunOptions
from aquila.sim.setting import PYTHON, RUN_FILE, SPLIT_FILE
from aquila.tasks.partition import partition_content
from aquila.training.data_digest import UNKNOWN, shard_digests
from aquila.training.module_shard import shared_work
from aquila.version import __version__

if TYPE_CHECKING:
    from aquila.sim.loop import Simulation


def write_run_file(
    folder: Path, simulation: Simulation, method: Method, rounds: int, options: RunOptions
) -> None:
    """Write the method, problem, options and environment of a run, and its split if known.

    Entries of `options.facts` replace those of the same name.
    """
    shards = [session.shard for session in simulation.devices]
    facts = {
        "method": method.name,
        "parameters": method_parameters(method),
        "started_from": PYTHON,
        "dimension": simulation.fleet.dimension,
        "widths": _describe_widths(simulation.fleet),
        "devices": len(shards),
        "data_digest": _joint_digest(shards),
        "rounds": rounds,
        "seed": simulation.seed,
        **options.to_dict(),
        **shared_work(shards),
        **(options.facts or {}),
        **environment(simulation.theta.device.type),
    }
    split = _split_content(shards, options)
    content = json.dumps(facts, indent=2, default=str) + "\n"
    atomic_write(folder / RUN_FILE, content.encode())
    if split is not None:
        atomic_write(folder / SPLIT_FILE, split)


def method_parameters(method: Method) -> dict[str, Value]:
    """Return the hyperparameters of a method, by name."""
    return dict(_plain_fields(method.device)) | dict(_plain_fields(method.server))


def environment(torch_device: str) -> dict[str, object]:
    """Return the versions and the hardware that a run uses."""
    return {
        "aquila": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "gpu": torch.cuda.get_device_name() if torch_device == "cuda" else "none",
    }


def _plain_fields(half: object) -> Iterator[tuple[str, Value]]:
    """Yield the hyperparameters of a half of a method, also of the parts it is made of."""
    if not is_dataclass(half):
        return
    for field in fields(half):
        value = getattr(half, field.name)
        if isinstance(value, Value):
            yield field.name, value
        else:
            yield from _plain_fields(value)


def _describe_widths(fleet: Fleet) -> str:
    """Return the devices per size of model, or "1" if all train the whole model."""
    sizes = Counter(fleet.dimension_of_group(group) for group in fleet.groups)
    if set(sizes) == {fleet.dimension}:
        return "1"
    return ", ".join(f"{count} x {size:,} parameters" for size, count in sizes.items())


def _joint_digest(shards: Sequence[object]) -> str | None:
    digests = shard_digests(shards)
    if set(digests) == {UNKNOWN}:
        return None
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:16]


def _split_content(shards: Sequence[object], options: RunOptions) -> bytes | None:
    """Return the split; without `options.partition`, samples count in the order of the shards."""
    if options.partition is not None:
        if len(options.partition) != len(shards):
            raise ValueError(
                f"partition has {len(options.partition)} parts, but there are {len(shards)} devices"
            )
        return partition_content([torch.as_tensor(part) for part in options.partition])
    counts = [_samples_of(shard) for shard in shards]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) or max(known) == 1:  # plain functions count as one sample
        return None
    owners = [device for device, count in enumerate(known) for _ in range(count)]
    return json.dumps({"device_of_sample": owners}, separators=(",", ":")).encode()


def _samples_of(shard: object) -> int | None:
    samples = getattr(getattr(shard, "inner", shard), "samples", None)
    return samples if isinstance(samples, int) else None
