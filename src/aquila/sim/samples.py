"""Check the samples of a problem against its module and loss, and move them to the device."""

from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

from aquila.sim.flat_module import Batch, FlatModule, channels_last
from aquila.sim.losses import (
    CLASS_TARGET_LOSSES,
    ELEMENTWISE_LOSSES,
    PROBABILITY_TARGET_LOSSES,
    ClassLayout,
    underlying_loss,
)


def check_samples(shards: Sequence[Batch], test: Batch | None) -> None:
    """Raise ValueError unless shards and test are pairs of tensors that fit each other."""
    if not isinstance(shards, Sequence):
        raise TypeError(
            "shards must be a list of pairs of tensors, inputs and targets, one per device, not "
            f"{type(shards).__name__}"
        )
    if not shards:
        raise ValueError("a problem needs at least one shard of data")
    for number, shard in enumerate(shards):
        if not _is_pair_of_tensors(shard):
            raise ValueError(
                f"shard {number} must be a pair of tensors, inputs and targets; shards are a list "
                "of such pairs, one per device"
            )
    if test is not None and not _is_pair_of_tensors(test):
        raise ValueError("test must be a pair of tensors, inputs and targets")
    first = shards[0][0].dtype
    for name, (x, y) in _with_names(shards, test):
        if x.ndim == 0 or y.ndim == 0:
            raise ValueError(
                f"{name} has inputs of shape {tuple(x.shape)} and targets of shape "
                f"{tuple(y.shape)}; the first axis of both must be the samples"
            )
        if len(x) == 0 or len(x) != len(y):
            raise ValueError(f"{name} has {len(x)} inputs and {len(y)} targets")
        if x.dtype != first:
            raise ValueError(
                f"{name} has {_dtype_name(x.dtype)} inputs, but shard 0 has {_dtype_name(first)}; "
                "all inputs must have the same type"
            )


def prepare_samples(
    shards: Sequence[Batch], test: Batch | None, models: Sequence[FlatModule]
) -> list[Batch]:
    """Probe the models with the inputs; return all shards, and then the test samples.

    The samples are on the device of the first model, in types that its loss takes.
    """
    first, x = models[0], shards[0][0]
    outputs = [_output_shape("shard 0", x, model, model.probe) for model in models]
    shapes = {x.shape[1:]: outputs[0]}
    moved = []
    for name, (x, y) in _with_names(shards, test):
        if x.shape[1:] not in shapes:
            shapes[x.shape[1:]] = _output_shape(name, x, first, first.outputs_shape)
        y = _checked_targets(name, y.to(first.theta.device), first, shapes[x.shape[1:]])
        moved.append((channels_last(x.to(first.theta.device)), y))
    for model in models:
        model.class_layout = ClassLayout.of(model.loss, [y for _, y in moved])
    return moved


def seen_classes(
    trained: Sequence[Batch], test: Batch | None, classes: int, layout: ClassLayout
) -> list[torch.Tensor]:
    """Return a mask of the classes in each shard; ValueError if a target is not a class."""
    seen = []
    for name, (_, y) in _with_names(trained, test):
        counted = y if layout.ignore_index is None else y[y != layout.ignore_index]
        wrong = counted[(counted < 0) | (counted >= classes)]
        if y.is_floating_point() or len(wrong):
            found = (
                _dtype_name(y.dtype) + " targets" if y.is_floating_point() else f"target {wrong[0]}"
            )
            raise ValueError(
                f"{name} has {found}; with classes={classes}, targets must be from 0 to "
                f"{classes - 1}"
            )
        seen.append(counted.new_zeros(classes, dtype=torch.bool))
        seen[-1][counted.flatten().long()] = True
    return seen[: len(trained)]


def _output_shape(
    name: str, x: torch.Tensor, model: FlatModule, run_probe: Callable[[torch.Tensor], torch.Size]
) -> torch.Size:
    """Return the shape of the outputs for inputs; ValueError if the module fails on them."""
    try:
        return run_probe(x[:2].to(model.theta.device))
    except (RuntimeError, IndexError, ValueError) as error:
        raise ValueError(
            f"{name} has {_dtype_name(x.dtype)} inputs of shape {tuple(x.shape)}, which the module "
            f"of {_dtype_name(model.theta.dtype)} does not take: {str(error).splitlines()[0]}"
        ) from error


def _checked_targets(
    name: str, y: torch.Tensor, model: FlatModule, outputs: torch.Size
) -> torch.Tensor:
    """Return targets in the type that the loss takes; ValueError if they do not fit.

    Targets of an unknown loss are returned as they are.
    """
    loss = underlying_loss(model.loss)
    by_class = loss in CLASS_TARGET_LOSSES
    if not by_class and loss not in ELEMENTWISE_LOSSES:
        return y
    if y.is_complex():
        raise ValueError(f"{name} has {_dtype_name(y.dtype)} targets; the loss takes real numbers")
    if len(outputs) < 1 + by_class:
        raise ValueError(
            f"the module returns outputs of shape {tuple(outputs)} for the first samples of "
            f"{name}; the loss needs an axis of samples{' and one of classes' if by_class else ''}"
        )
    if not by_class:
        return _with_checked_shape(name, y.to(model.theta.dtype), outputs, outputs)
    classes = model.class_layout.target_shape(outputs)
    if not y.is_floating_point():
        y = _with_checked_shape(name, y.long(), outputs, classes)
        _check_classes(name, y, model, outputs[model.class_layout.class_axis])
        return y
    if model.loss is functional.cross_entropy or loss not in PROBABILITY_TARGET_LOSSES:
        raise ValueError(
            f"{name} has {_dtype_name(y.dtype)} targets, which are numbers, not classes; pass "
            "loss=F.mse_loss for numbers, loss=nn.CrossEntropyLoss() for probabilities, or convert "
            "classes with .long()"
        )
    return _with_checked_shape(name, y.to(model.theta.dtype), outputs, outputs, classes)


def _with_checked_shape(
    name: str,
    y: torch.Tensor,
    outputs: torch.Size,
    expected: torch.Size,
    expected_integers: torch.Size | None = None,
) -> torch.Tensor:
    """Return targets of the expected shape; the error can also name that of integer targets."""
    if y.shape[1:] == expected[1:]:
        return y
    integers = expected_integers
    also = "" if integers is None else f", or integers of shape {(len(y), *integers[1:])}"
    raise ValueError(
        f"{name} has targets of shape {tuple(y.shape)}; for outputs of shape "
        f"{(len(y), *outputs[1:])} the loss takes {(len(y), *expected[1:])}{also}"
    )


def _check_classes(name: str, y: torch.Tensor, model: FlatModule, classes: int) -> None:
    """Raise ValueError for a target that the module has no output for and the loss counts."""
    wrong = y[(y < 0) | (y >= classes)]
    ignored = ClassLayout.of(model.loss, [wrong]).ignore_index
    wrong = wrong if ignored is None else wrong[wrong != ignored]
    if len(wrong):
        raise ValueError(
            f"{name} has target {int(wrong[0])}, but the module has outputs for the classes 0 to "
            f"{classes - 1}"
        )


def _with_names(shards: Sequence[Batch], test: Batch | None) -> list[tuple[str, Batch]]:
    every = [(f"shard {number}", shard) for number, shard in enumerate(shards)]
    return every if test is None else [*every, ("test", test)]


def _is_pair_of_tensors(batch: object) -> bool:
    return (
        isinstance(batch, tuple | list)
        and len(batch) == 2
        and all(isinstance(part, torch.Tensor) for part in batch)
    )


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
