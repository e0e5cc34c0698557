"""Models in files: state dicts as `.safetensors` or `.pt`, read without running code."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from zipfile import ZipFile, is_zipfile

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import nn

from aquila.runtime.array_file import check_stored
from aquila.runtime.files import atomic_file
from aquila.tasks.models import BATCH_NORMS

StateDict = dict[str, torch.Tensor]

SAFETENSORS, TORCH = ".safetensors", ".pt"
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Buffers of a batch norm with running statistics."""


def check_model_path(path: Path | str) -> Path:
    """Return the path; ValueError unless its name ends in `.pt` or `.safetensors`."""
    path = Path(path)
    if path.suffix not in (SAFETENSORS, TORCH):
        raise ValueError(
            f"a model file must end in .safetensors or .pt, unlike {path.name or str(path)!r}"
        )
    return path


def write_model(path: Path, tensors: StateDict, metadata: Mapping[str, str]) -> None:
    """Write a state dict atomically. Only `.safetensors` files keep the metadata."""
    # copies, because the parameters of a flat module share memory
    copies = {name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()}
    with atomic_file(check_model_path(path)) as file:
        if path.suffix == SAFETENSORS:
            file.writelines(_safetensors(copies, metadata))
        else:
            torch.save(copies, file)


def read_model(path: Path | str) -> StateDict:
    """Read a state dict; ValueError if the file holds anything else. No code in it is run."""
    path = check_model_path(path)
    if not path.is_file():
        raise ValueError(f"there is no model file {path}")
    try:
        if path.suffix == SAFETENSORS:
            return load_file(path)
        _check_stored(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch and safetensors raise many kinds
        written_by = "safetensors" if path.suffix == SAFETENSORS else "torch.save from tensors only"
        raise ValueError(
            f"{path} is not a readable model file: it must be a state dict written by {written_by}"
        ) from error
    if not isinstance(tensors, Mapping) or not all(
        isinstance(tensor, torch.Tensor) for tensor in tensors.values()
    ):
        raise ValueError(f"{path} does not hold a state dict: tensors by name")
    return dict(tensors)


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a `.safetensors` file; nothing if the file is missing or damaged."""
    try:
        with safe_open(path, "pt") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError):
        return {}


def load_state(module: nn.Module, tensors: StateDict, source: str) -> None:
    """Copy a state dict into a module; ValueError names the first key that does not fit.

    Running statistics are left out where the module keeps none.
    """
    tensors = {name: tensor for name, tensor in tensors.items() if name not in _unused(module)}
    expected = module.state_dict()
    for name, tensor in expected.items():
        if name not in tensors:
            raise ValueError(f"{source} lacks {name}, which the module has")
        if tensors[name].shape != tensor.shape:
            raise ValueError(
                f"{source} has {name} of shape {tuple(tensors[name].shape)}, but the module has "
                f"{tuple(tensor.shape)}"
            )
    for name in tensors:
        if name not in expected:
            raise ValueError(f"{source} has {name}, which the module lacks")
    module.load_state_dict(tensors)


def _check_stored(path: Path) -> None:
    """Raise ValueError if the file would expand when it is read; torch.save does not compress."""
    if is_zipfile(path):
        with ZipFile(path) as archive:
            check_stored(archive)


def _safetensors(tensors: StateDict, metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """Yield the parts of a file. The same model and metadata always give the same bytes."""
    content = memoryview(save(tensors, dict(metadata)))
    size = int.from_bytes(content[:8], "little")
    header = json.loads(bytes(content[8 : 8 + size]))
    header["__metadata__"] = dict(metadata)  # safetensors itself writes it in any order
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield from (len(text).to_bytes(8, "little"), text, content[8 + size :])


def _unused(module: nn.Module) -> set[str]:
    """Return the keys of running statistics that the batch norms of a module do not keep."""
    static = [
        f"{name}." if name else ""
        for name, part in module.named_modules()
        if isinstance(part, BATCH_NORMS) and not part.track_running_stats
    ]
    return {prefix + statistic for prefix in static for statistic in STATISTICS}
