"""Inputs of a module, a tensor or a tuple or dict of tensors, and batches of them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

Inputs = torch.Tensor | tuple[torch.Tensor, ...] | dict[str, torch.Tensor]
"""A tuple holds positional arguments of the module, a dict holds keyword arguments."""

Batch = tuple[Inputs, torch.Tensor | None]
"""Inputs and targets. Without targets, the module computes the loss itself."""

TensorBatch = tuple[torch.Tensor, torch.Tensor]
"""One tensor of inputs and one of targets."""


def run_module(module: nn.Module, x: Inputs) -> Any:
    """Call a module with inputs."""
    if isinstance(x, dict):
        return module(**x)
    return module(*x) if isinstance(x, tuple) else module(x)


def map_inputs(change: Callable[[torch.Tensor], torch.Tensor], x: Inputs) -> Inputs:
    """Apply a function to each tensor of the inputs."""
    if isinstance(x, dict):
        return {name: change(part) for name, part in x.items()}
    return tuple(change(part) for part in x) if isinstance(x, tuple) else change(x)


def parts_of(x: Inputs) -> dict[str, torch.Tensor]:
    """Return the tensors of the inputs, with names for error messages."""
    if isinstance(x, dict):
        return {f"inputs {name!r}": part for name, part in x.items()}
    if isinstance(x, tuple):
        return {f"inputs {number}": part for number, part in enumerate(x)}
    return {"inputs": x}


def count_samples(x: Inputs) -> int:
    """Return the length of the first axis of the inputs."""
    return len(_tensors(x)[0])


def take_samples(batch: Batch, indices: torch.Tensor | slice) -> Batch:
    """Return some samples of a batch."""
    x, y = batch
    return map_inputs(lambda part: part[indices], x), None if y is None else y[indices]


def concatenate(inputs: Sequence[Inputs]) -> Inputs:
    """Join inputs of the same form along the axis of samples."""
    joined = [torch.cat(parts) for parts in zip(*map(_tensors, inputs), strict=True)]
    first = inputs[0]
    if isinstance(first, dict):
        return dict(zip(first, joined, strict=True))
    return tuple(joined) if isinstance(first, tuple) else joined[0]


def split_batch(batch: Batch, passes: int) -> Iterator[Batch]:
    """Yield the batch in parts of nearly equal size."""
    x, y = batch
    if isinstance(x, torch.Tensor) and y is not None:
        yield from zip(x.tensor_split(passes), y.tensor_split(passes), strict=True)
        return
    size, larger = divmod(count_samples(x), passes)
    start = 0
    for number in range(passes):
        end = start + size + (number < larger)
        yield take_samples(batch, slice(start, end))
        start = end


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """Return images in channels-last memory format, which makes convolutions faster."""
    if x.ndim != 4 or x.stride(1) == 1:
        return x
    # `contiguous` would not change images of one channel
    return torch.empty_like(x, memory_format=torch.channels_last).copy_(x)


def in_fast_format(x: Inputs) -> Inputs:
    """Return inputs in the memory format in which layers are fastest."""
    return map_inputs(channels_last, x)


def _tensors(x: Inputs) -> list[torch.Tensor]:
    return list(parts_of(x).values())
