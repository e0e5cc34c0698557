"""Narrow models: HeteroFL (Diao, Ding, Tarokh, ICLR 2021, arXiv 2010.01264).

A device of width r holds the first ⌈r n⌉ of the n channels of every layer; inputs and classes are
never cut. What a layer puts out is divided by r in training, so that a narrow and a full model
learn from numbers of the same size; a test uses the plain values.
"""

import math
from typing import Annotated, Literal

import torch
from torch import nn

from aquila.core.parameter import Bounds

Width = Annotated[float, Bounds("share of the channels of every layer", above=0, high=1)]
Classes = Annotated[int, Bounds("classes to tell apart", 1)]
Channels = Annotated[int, Bounds("channels of an image", 1)]

Norm = Literal["none", "static", "running"]
"""No batch norm, batch norm by batch statistics alone, or batch norm that also keeps them."""
NormOption = Annotated[
    Literal["static", "running"], "batch norm that keeps no statistics, or that keeps them"
]

ROUNDING_MARGIN = 1e-9


def narrow(count: int, width: float) -> int:
    """Return how many of `count` channels a model of the given width holds."""
    # 0.07 * 100 is a hair above 7 in floating point, and must not become 8
    return max(1, math.ceil(width * count - ROUNDING_MARGIN))


class Scaler(nn.Module):
    """Divides by the width, in training only."""

    def __init__(self, width: float) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x / r in training, x in testing."""
        return x / self.width if self.training and self.width < 1 else x


def scaled_norm(channels: int, width: float, norm: Norm) -> nn.Sequential:
    """Return what follows a convolution: the scaler, then batch norm where it is wanted."""
    if norm == "none":
        return nn.Sequential(Scaler(width))
    running = norm == "running"
    batch_norm = nn.BatchNorm2d(channels, momentum=None, track_running_stats=running)
    return nn.Sequential(Scaler(width), batch_norm)


def submodel_coordinates(full: nn.Module, part: nn.Module) -> torch.Tensor:
    """Return the coordinates of the full model's flat parameters that a narrower model holds.

    They are sorted, and in the order of the narrower model's own flat parameters: a prefix of
    every axis of every parameter.
    """
    wholes, pieces = _trainable(full), _trainable(part)
    if len(wholes) != len(pieces):
        raise ValueError(
            f"the full model has {len(wholes)} parameters and the narrower one {len(pieces)}"
        )
    held, start = [], 0
    for (name, whole), (other, piece) in zip(wholes, pieces, strict=True):
        _check_is_prefix(name, whole.shape, other, piece.shape)
        # shapes are all that counts, so that models on the meta device will do
        numbers = torch.arange(start, start + whole.numel()).view(whole.shape)
        held.append(numbers[tuple(slice(size) for size in piece.shape)].reshape(-1))
        start += whole.numel()
    return torch.cat(held)


def _trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in module.named_parameters() if p.requires_grad]


def _check_is_prefix(name: str, whole: torch.Size, other: str, piece: torch.Size) -> None:
    if name != other:
        raise ValueError(f"the full model has {name} where the narrower one has {other}")
    if len(whole) != len(piece) or any(p > w for p, w in zip(piece, whole, strict=True)):
        raise ValueError(f"{name} of shape {tuple(piece)} is no part of one of {tuple(whole)}")
