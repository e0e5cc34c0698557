"""MobileNet-v2 (Sandler et al., CVPR 2018, arXiv 1801.04381) for 32 x 32 images.

This is the common CIFAR-100 variant. The stem is a 3 x 3 convolution of stride 1, every convolution
has a bias, every stage has an expansion convolution, and the classifier is a 1 x 1 convolution.
Narrower widths follow HeteroFL (Diao et al., ICLR 2021, arXiv 2010.01264): the channels are scaled,
and the expansion factor multiplies the scaled number.
"""

from typing import NamedTuple

import torch
from torch import nn

from aquila.tasks.widths import Channels, Classes, Norm, NormOption, Width, narrow, scaled_norm


class Stage(NamedTuple):
    """A group of blocks with the same number of output channels."""

    blocks: int
    outputs: int
    stride: int
    expansion: int


STEM_CHANNELS = 32
STAGES = (
    Stage(1, 16, 1, 1),
    Stage(2, 24, 2, 6),
    Stage(3, 32, 2, 6),
    Stage(4, 64, 2, 6),
    Stage(3, 96, 1, 6),
    Stage(3, 160, 1, 6),
    Stage(1, 320, 1, 6),
)
HEAD_CHANNELS = 1280


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution and projection, with a shortcut in all but first blocks."""

    def __init__(self, inputs: int, stage: Stage, first: bool, width: float, norm: Norm) -> None:
        super().__init__()
        inner, outputs = inputs * stage.expansion, narrow(stage.outputs, width)
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, inner, 1),
            scaled_norm(inner, width, norm),
            nn.ReLU6(),
            nn.Conv2d(inner, inner, 3, stage.stride if first else 1, padding=1, groups=inner),
            scaled_norm(inner, width, norm),
            nn.ReLU6(),
            nn.Conv2d(inner, outputs, 1),
            scaled_norm(outputs, width, norm),
        )
        # by position, not by size, so that narrow and full models have the same shortcuts
        self.has_shortcut = not first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the layers, plus x if the block has a shortcut."""
        out: torch.Tensor = self.layers(x)
        return x + out if self.has_shortcut else out


def mobilenetv2(
    classes: Classes = 100,
    channels: Channels = 3,
    width: Width = 1.0,
    norm: NormOption = "static",
) -> nn.Module:
    """Return a MobileNet-v2. It has 2,370,148 parameters for 100 classes."""
    size, head = narrow(STEM_CHANNELS, width), narrow(HEAD_CHANNELS, width)
    layers: list[nn.Module] = [nn.Conv2d(channels, size, 3, padding=1)]
    layers += [scaled_norm(size, width, norm), nn.ReLU6()]
    for stage in STAGES:
        for block in range(stage.blocks):
            layers.append(InvertedResidual(size, stage, block == 0, width, norm))
            size = narrow(stage.outputs, width)
    layers += [nn.Conv2d(size, head, 1), scaled_norm(head, width, norm), nn.ReLU6()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Conv2d(head, classes, 1), nn.Flatten()]
    return nn.Sequential(*layers)
