"""Check targets against the loss and the outputs of the module."""

from collections.abc import Sequence

import torch
from torch.nn import functional

from aquila.training.losses import (
    CLASS_TARGET_LOSSES,
    ELEMENTWISE_LOSSES,
    PROBABILITY_TARGET_LOSSES,
    ClassLayout,
    underlying_loss,
)
from aquila.training.objective import Objective
from aquila.training.shard_data import ShardData, TensorData


def seen_classes(
    trained: Sequence[ShardData], test: ShardData | None, classes: int, layout: ClassLayout
) -> list[torch.Tensor]:
    """Return a mask of the classes in each shard; ValueError if a target is not a class."""
    seen = []
    for data in [*trained, *([] if test is None else [test])]:
        name, y = data.name, data.batch[1] if isinstance(data, TensorData) else None
        if y is None:
            raise ValueError(f"{name} must be a pair of tensors if classes is set")
        counted = y if layout.ignore_index is None else y[y != layout.ignore_index]
        wrong = counted[(counted < 0) | (counted >= classes)]
        if y.is_floating_point() or len(wrong):
            found = (
                dtype_name(y.dtype) + " targets" if y.is_floating_point() else f"target {wrong[0]}"
            )
            raise ValueError(
                f"{name} has {found}; with classes={classes}, targets must be from 0 to "
                f"{classes - 1}"
            )
        seen.append(counted.new_zeros(classes, dtype=torch.bool))
        seen[-1][counted.flatten().long()] = True
    return seen[: len(trained)]


def checked_targets(
    name: str, y: torch.Tensor, objective: Objective, dtype: torch.dtype, outputs: torch.Size
) -> torch.Tensor:
    """Return targets in the type that the loss takes; ValueError if they do not fit.

    Targets of an unknown loss are returned as they are.
    """
    loss, layout = underlying_loss(objective.loss), objective.class_layout
    by_class = loss in CLASS_TARGET_LOSSES
    if not by_class and loss not in ELEMENTWISE_LOSSES:
        return y
    if y.is_complex():
        raise ValueError(f"{name} has {dtype_name(y.dtype)} targets; the loss takes real numbers")
    if len(outputs) < 1 + by_class:
        raise ValueError(
            f"the module returns outputs of shape {tuple(outputs)} for the first samples of "
            f"{name}; the loss needs an axis of samples{' and one of classes' if by_class else ''}"
        )
    if not by_class:
        return _with_checked_shape(name, y.to(dtype), outputs, outputs)
    classes = layout.target_shape(outputs)
    if not y.is_floating_point():
        y = _with_checked_shape(name, y.long(), outputs, classes)
        ignored = ClassLayout.of(objective.loss, [y])
        check_classes(name, y, ignored, outputs[layout.class_axis])
        return y
    if objective.loss is functional.cross_entropy or loss not in PROBABILITY_TARGET_LOSSES:
        raise ValueError(
            f"{name} has {dtype_name(y.dtype)} targets, which are numbers, not classes; pass "
            "loss=F.mse_loss for numbers, loss=nn.CrossEntropyLoss() for probabilities, or convert "
            "classes with .long()"
        )
    return _with_checked_shape(name, y.to(dtype), outputs, outputs, classes)


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


def check_classes(name: str, y: torch.Tensor, layout: ClassLayout, classes: int) -> None:
    """Raise ValueError for a target that the module has no output for and the loss counts."""
    wrong = y[(y < 0) | (y >= classes)]
    wrong = wrong if layout.ignore_index is None else wrong[wrong != layout.ignore_index]
    if len(wrong):
        raise ValueError(
            f"{name} has target {int(wrong[0])}, but the module has outputs for the classes 0 to "
            f"{classes - 1}"
        )


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a type without the name of the package."""
    return str(dtype).removeprefix("torch.")
