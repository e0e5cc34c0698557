"""Narrow models: HeteroFL (Diao, Ding, Tarokh, ICLR 2021, arXiv 2010.01264).

A device of width r holds the first ⌈r n⌉ of the n channels of every layer. Inputs and classes are
never cut. In training, the output of a layer is divided by r, so that narrow and full models have
activations of the same scale. In eval mode the output is not divided.
"""

import math
from typing import Annotated, Literal

import torch
from torch import nn

from aquila.core.parameter import Bounds

Width = Annotated[float, Bounds("fraction of the channels of every layer", above=0, high=1)]
Classes = Annotated[int, Bounds("number of classes", 1)]
Channels = Annotated[int, Bounds("channels per image", 1)]

Norm = Literal["none", "static", "running"]
"""No batch norm, batch norm with batch statistics only, or with running statistics."""
NormOption = Annotated[
    Literal["static", "running"], "batch norm without or with running statistics"
]

ROUNDING_MARGIN = 1e-9


def narrow(count: int, width: float) -> int:
    """Return the number of channels, out of `count`, in a model of the given width."""
    # 0.07 * 100 is slightly above 7 in floating point, and must not become 8
    return max(1, math.ceil(width * count - ROUNDING_MARGIN))


class Scaler(nn.Module):
    """Divides by the width in training mode."""

    def __init__(self, width: float) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x / r in training mode, x in eval mode."""
        return x / self.width if self.training and self.width < 1 else x


def scaled_norm(channels: int, width: float, norm: Norm) -> nn.Sequential:
    """Return the scaler, followed by batch norm unless `norm` is "none"."""
    if norm == "none":
        return nn.Sequential(Scaler(width))
    running = norm == "running"
    batch_norm = nn.BatchNorm2d(channels, momentum=None, track_running_stats=running)
    return nn.Sequential(Scaler(width), batch_norm)


def submodel_coordinates(full: nn.Module, part: nn.Module) -> torch.Tensor:
    """Return the coordinates of the full model's flat parameters that a narrower model holds.

    A narrower model holds a prefix of every axis of every parameter. The coordinates are sorted,
    which is also the order of the narrower model's flat parameters. Models on the meta device
    work, because only shapes matter.
    """
    full_parameters, part_parameters = _trainable(full), _trainable(part)
    if len(full_parameters) != len(part_parameters):
        raise ValueError(
            f"the full model has {len(full_parameters)} parameters, but the narrower model has "
            f"{len(part_parameters)}"
        )
    coordinates, start = [], 0
    for (full_name, whole), (name, prefix) in zip(full_parameters, part_parameters, strict=True):
        _check_is_prefix(full_name, whole.shape, name, prefix.shape)
        numbers = torch.arange(start, start + whole.numel()).view(whole.shape)
        coordinates.append(numbers[tuple(slice(size) for size in prefix.shape)].reshape(-1))
        start += whole.numel()
    return torch.cat(coordinates)


def _trainable(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in module.named_parameters() if p.requires_grad]


def _check_is_prefix(full_name: str, whole: torch.Size, name: str, prefix: torch.Size) -> None:
    if full_name != name:
        raise ValueError(f"the full model has {full_name} where the narrower model has {name}")
    if len(whole) != len(prefix) or any(p > w for p, w in zip(prefix, whole, strict=True)):
        raise ValueError(
            f"{name} of shape {tuple(prefix)} is not a prefix of the full model's {tuple(whole)}"
        )
