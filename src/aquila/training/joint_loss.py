"""Cross-entropy of many devices in a few operations, with the bits of one call per device."""

import numpy as np
import torch
from torch.nn import functional

from aquila.training.objective import Objective

_LEVELS, _LEVEL_BITS = 8, 4
"""Levels of partial sums, and the binary logarithm of the terms per level, in torch's sum."""


def is_mean_cross_entropy(
    objective: Objective, outputs: torch.Tensor, targets: torch.Tensor
) -> bool:
    """Whether the loss is torch's mean cross-entropy of one class per sample, none ignored.

    Args:
        objective: The objective.
        outputs: Scores per device, sample and class.
        targets: Targets of one device.
    """
    return (
        objective.loss is functional.cross_entropy
        and objective.class_layout.ignore_index is None
        and outputs.ndim == 3
        and outputs.dtype in (torch.float32, torch.float64)
        and targets.ndim == 1
        and not targets.is_floating_point()
    )


def sample_losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of each sample, with a row per device."""
    losses = functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
    return losses.view(targets.shape)


def mean_losses(losses: torch.Tensor) -> list[float]:
    """Return the mean loss of each row, added in the order of torch's mean cross-entropy.

    Torch adds samples to a partial sum of level 0. Sample b moves the sums of the lowest levels up
    by one: as many levels as b has trailing zeros in base 16, and all of them if b is 0.
    """
    samples = losses.T.numpy()
    sums = np.zeros((_LEVELS, samples.shape[1]), samples.dtype)
    for number, sample in enumerate(samples):
        sums[0] += sample
        for level in range(_LEVELS - 1):
            if number >> (_LEVEL_BITS * level) & (2**_LEVEL_BITS - 1):
                break
            sums[level + 1] += sums[level]
            sums[level] = 0
    total = sums[0]
    for partial_sum in sums[1:]:
        total = total + partial_sum
    means: list[float] = (total / samples.dtype.type(len(samples))).tolist()
    return means
