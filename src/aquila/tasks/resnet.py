"""ResNet-18 with pre-activation (He et al., ECCV 2016, arXiv 1603.05027) for 32 x 32 images.

The variant and its narrower widths follow HeteroFL (Diao et al., ICLR 2021, arXiv 2010.01264).
Convolutions have no bias, a convolutional shortcut starts after the first activation, and batch
norm follows the last block.
"""

import torch
from torch import nn

from aquila.tasks.widths import Channels, Classes, Norm, NormOption, Width, narrow, scaled_norm

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels and first stride of each stage."""
BLOCKS_PER_STAGE = 2


class Block(nn.Module):
    """Two convolutions, each after batch norm and activation, plus a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, width: float, norm: Norm) -> None:
        super().__init__()
        self.norm1 = scaled_norm(inputs, width, norm)
        self.conv1 = _convolution(inputs, outputs, 3, stride)
        self.norm2 = scaled_norm(outputs, width, norm)
        self.conv2 = _convolution(outputs, outputs, 3, 1)
        self.shortcut: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.shortcut = _convolution(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the convolutions plus the shortcut."""
        active = torch.relu(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(active)
        out: torch.Tensor = self.conv2(torch.relu(self.norm2(self.conv1(active))))
        return out + shortcut


def resnet18(
    classes: Classes = 10,
    channels: Channels = 3,
    width: Width = 1.0,
    norm: NormOption = "static",
) -> nn.Module:
    """Return a ResNet-18. It has 11,172,170 parameters for 10 classes."""
    size = narrow(STAGES[0][0], width)
    layers: list[nn.Module] = [_convolution(channels, size, 3, 1)]
    for count, first_stride in STAGES:
        for stride in [first_stride] + [1] * (BLOCKS_PER_STAGE - 1):
            layers.append(Block(size, narrow(count, width), stride, width, norm))
            size = narrow(count, width)
    layers += [scaled_norm(size, width, norm), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    classifier = nn.Linear(size, classes)
    nn.init.zeros_(classifier.bias)
    return nn.Sequential(*layers, classifier)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
