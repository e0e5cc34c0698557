"""Properties of a loss: whether it is a mean over samples, and how it reads classes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from aquila.tasks.transformer import token_loss

Loss = Callable[[Any, torch.Tensor], torch.Tensor]
"""(outputs, targets) -> loss of the batch"""

PROBABILITY_TARGET_LOSSES = (functional.cross_entropy, nn.CrossEntropyLoss)
"""Losses that take one class per sample, or one probability per class."""

CLASS_AXIS_ONE_LOSSES = (*PROBABILITY_TARGET_LOSSES, functional.nll_loss, nn.NLLLoss)
"""Losses whose outputs have the classes in axis 1."""

CLASS_TARGET_LOSSES = (*CLASS_AXIS_ONE_LOSSES, token_loss)
"""Losses whose integer targets are classes."""

ELEMENTWISE_LOSSES = (
    functional.mse_loss, nn.MSELoss,
    functional.l1_loss, nn.L1Loss,
    functional.smooth_l1_loss, nn.SmoothL1Loss,
    functional.huber_loss, nn.HuberLoss,
    functional.poisson_nll_loss, nn.PoissonNLLLoss,
    functional.binary_cross_entropy, nn.BCELoss,
    functional.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss,
)  # fmt: skip
"""Losses of each output and its target. Other shapes would be broadcast."""

WEIGHTING_OPTIONS = ("weight", "pos_weight", "size_average", "reduce")
"""Options with which a loss may not be a mean over samples."""

DEFAULT_IGNORE_INDEX = -100
"""The target that torch ignores by default."""


def underlying_loss(loss: Loss) -> object:
    """Return the function that a loss calls, or the class whose `forward` it runs."""
    if isinstance(loss, partial):
        return loss.func
    if isinstance(loss, nn.Module):
        return next(kind for kind in type(loss).__mro__ if "forward" in vars(kind))
    return loss


def is_mean_over_samples(loss: Loss) -> bool:
    """Whether the loss is known to be a mean over samples, if no target is ignored."""
    known = underlying_loss(loss) in (*CLASS_TARGET_LOSSES, *ELEMENTWISE_LOSSES)
    weighted = any(_option(loss, name, None) is not None for name in WEIGHTING_OPTIONS)
    return known and not weighted and _option(loss, "reduction", "mean") == "mean"


def check_loss(loss: Loss) -> None:
    """Raise ValueError for a loss that cannot be called with outputs and targets."""
    if isinstance(loss, type):
        raise ValueError(f"loss is the class {loss.__name__}; pass an instance: {loss.__name__}()")
    if not callable(loss):
        raise ValueError(f"loss must be a function of outputs and targets, not {loss!r}")


@dataclass(frozen=True)
class ClassLayout:
    """Which axis of the outputs holds the classes, and which target is ignored."""

    class_axis: int
    ignore_index: int | None

    @classmethod
    def of(
        cls, loss: Loss, targets: Iterable[torch.Tensor] = (), more_targets: bool = False
    ) -> "ClassLayout":
        """Return the layout of a loss; `ignore_index` is None if no target is ignored.

        With `more_targets`, targets that are not known yet may be ignored.
        """
        axis = 1 if underlying_loss(loss) in CLASS_AXIS_ONE_LOSSES else -1
        ignored = _option(loss, "ignore_index", DEFAULT_IGNORE_INDEX)
        integer_targets = (y for y in targets if not y.is_floating_point())
        found = underlying_loss(loss) in CLASS_TARGET_LOSSES and (
            more_targets or any(bool((y == ignored).any()) for y in integer_targets)
        )
        return cls(axis, ignored if found else None)

    def target_shape(self, outputs: torch.Size) -> torch.Size:
        """Return the shape of targets that are classes."""
        axis = self.class_axis % len(outputs)
        return outputs[:axis] + outputs[axis + 1 :]

    def are_classes_of(self, targets: torch.Tensor, outputs: torch.Tensor) -> bool:
        """Whether the targets are classes that the outputs have scores for."""
        if targets.is_floating_point() or outputs.ndim != targets.ndim + 1:
            return False
        return self.target_shape(outputs.shape) == targets.shape

    def mask_unseen(self, seen: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs with a score of zero for each class that was not seen."""
        axes_after = outputs.ndim - 2 if self.class_axis == 1 else 0
        return outputs.masked_fill(~seen.view(-1, *[1] * axes_after), 0)

    def accuracy(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the accuracy, without ignored targets."""
        correct = outputs.argmax(self.class_axis) == targets
        if self.ignore_index is None:
            return correct.float().mean()
        counted = targets != self.ignore_index
        # a CUDA graph cannot capture indexing by a mask
        return (correct & counted).sum() / counted.sum()


def _option(loss: Loss, name: str, default: Any) -> Any:
    if isinstance(loss, partial):
        return loss.keywords.get(name, default)
    return getattr(loss, name, default)
