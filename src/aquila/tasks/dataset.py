"""The type of a data set: training samples, test samples and the number of classes."""

from dataclasses import dataclass

import torch

Samples = tuple[torch.Tensor, torch.Tensor]
"""Inputs and targets."""


@dataclass(frozen=True)
class Dataset:
    """Training and test samples. For texts, the classes are the words."""

    train: Samples
    test: Samples
    classes: int
