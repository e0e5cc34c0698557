"""The samples that users give: pairs of tensors that fit the module and the loss."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from aquila.sim.flat import Batch, FlatModule, channels_last

BY_CLASS = (functional.cross_entropy, nn.CrossEntropyLoss)
"""Losses whose targets, if whole numbers, lack the axis of the outputs that has the classes."""

ONE_BY_ONE = (
    functional.mse_loss, nn.MSELoss,
    functional.l1_loss, nn.L1Loss,
    functional.smooth_l1_loss, nn.SmoothL1Loss,
    functional.huber_loss, nn.HuberLoss,
    functional.binary_cross_entropy, nn.BCELoss,
    functional.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss,
)  # fmt: skip
"""Losses that compare each output with its target; of other shapes many compare all with all."""


def check_samples(shards: Sequence[Batch], test: Batch | None) -> None:
    """Refuse what is no pair of as many inputs as targets, and inputs of several types."""
    if not shards:
        raise ValueError("a problem needs at least one shard of data")
    for number, shard in enumerate(shards):
        if not _is_pair_of_tensors(shard):
            raise ValueError(
                f"shard {number} must be a pair of tensors, inputs and targets; shards are a list "
                "of such pairs, one for each device"
            )
    if test is not None and not _is_pair_of_tensors(test):
        raise ValueError("test must be a pair of tensors, inputs and targets")
    first = shards[0][0].dtype
    for name, (x, y) in _named(shards, test):
        if len(x) == 0 or len(x) != len(y):
            raise ValueError(f"{name} has {len(x)} inputs and {len(y)} targets")
        if x.dtype != first:
            raise ValueError(
                f"{name} has {_plain(x.dtype)} inputs, but shard 0 has {_plain(first)}; all must "
                "be of one type"
            )


def probe(model: FlatModule, x: torch.Tensor) -> torch.Size:
    """Have a model look at itself by the inputs of shard 0; return the shape of its outputs."""
    try:
        return model.probe(x[:2].to(model.theta.device))
    except RuntimeError as error:
        raise ValueError(
            f"shard 0 has {_plain(x.dtype)} inputs of shape {tuple(x.shape)}, which the module of "
            f"{_plain(model.theta.dtype)} does not take: {str(error).splitlines()[0]}"
        ) from error


def placed(
    shards: Sequence[Batch], test: Batch | None, model: FlatModule, outputs: torch.Size
) -> list[Batch]:
    """Return all samples, the test's last, where the model is and in types that its loss takes.

    `outputs` is the shape that the model gives for inputs like those of shard 0.
    """
    device, like = model.theta.device, shards[0][0].shape[1:]
    there = []
    for name, (x, y) in _named(shards, test):
        known = outputs if x.shape[1:] == like else None
        y = _fitting(name, y.to(device), model, known)
        there.append((channels_last(x.to(device)), y))
    return there


def _fitting(
    name: str, y: torch.Tensor, model: FlatModule, outputs: torch.Size | None
) -> torch.Tensor:
    """Return targets in the type that the loss takes, or refuse them; unknown losses take any."""
    loss = type(model.loss) if isinstance(model.loss, nn.Module) else model.loss
    if loss in BY_CLASS and not y.is_floating_point():
        y, shared = y.long(), 2
    elif loss is functional.cross_entropy:
        raise ValueError(
            f"{name} has {_plain(y.dtype)} targets, which are numbers, not classes; give loss=, "
            "such as F.mse_loss, or make them whole by .long() if they are classes"
        )
    elif loss in (*BY_CLASS, *ONE_BY_ONE):
        y, shared = y.to(model.theta.dtype), 1
    else:
        return y
    if outputs is not None and y.shape[1:] != outputs[shared:]:
        raise ValueError(
            f"{name} has targets of shape {tuple(y.shape)}; for outputs of shape "
            f"{(len(y), *outputs[1:])} the loss takes {(len(y), *outputs[shared:])}"
        )
    return y


def _named(shards: Sequence[Batch], test: Batch | None) -> list[tuple[str, Batch]]:
    every = [(f"shard {number}", shard) for number, shard in enumerate(shards)]
    return every if test is None else [*every, ("test", test)]


def _is_pair_of_tensors(batch: object) -> bool:
    return (
        isinstance(batch, tuple | list)
        and len(batch) == 2
        and all(isinstance(part, torch.Tensor) for part in batch)
    )


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
