"""What a data set is: training and test samples, and how many classes they fall into."""

from dataclasses import dataclass

import torch

Samples = tuple[torch.Tensor, torch.Tensor]
"""Inputs and targets."""


@dataclass(frozen=True)
class Dataset:
    """Samples to train on and samples to be judged by."""

    train: Samples
    test: Samples
    classes: int
