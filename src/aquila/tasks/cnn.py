"""A small convolutional network (LeCun et al., Proceedings of the IEEE 1998) for small images.

It has two convolutions with pooling and one hidden layer. Narrower widths follow HeteroFL (Diao et
al., ICLR 2021, arXiv 2010.01264). The defaults, for 28 x 28 grey images, give 96,658 parameters.
"""

from typing import Annotated

from torch import nn

from aquila.core.parameter import Bounds
from aquila.tasks.widths import Channels, Classes, Norm, Scaler, Width, narrow, scaled_norm


def cnn(
    channels: Channels = 1,
    size: Annotated[int, Bounds("height and width of an image in pixels", 4)] = 28,
    filters: Annotated[
        int, Bounds("filters of the first convolution; the second has twice as many", 1)
    ] = 8,
    hidden: Annotated[int, Bounds("units in the hidden layer", 1)] = 120,
    classes: Classes = 10,
    width: Width = 1.0,
    norm: Annotated[
        Norm, "no batch norm, batch norm without running statistics, or with them"
    ] = "none",
) -> nn.Module:
    """Return a network for square images."""
    first, second, units = (narrow(count, width) for count in (filters, 2 * filters, hidden))
    pooled = second * (size // 4) ** 2
    return nn.Sequential(
        _convolution(channels, first, width, norm),
        _convolution(first, second, width, norm),
        nn.Flatten(),  # channels come first, so a prefix of the channels stays a prefix
        nn.Linear(pooled, units),
        Scaler(width),
        nn.ReLU(),
        nn.Linear(units, classes),
    )


def _convolution(inputs: int, outputs: int, width: float, norm: Norm) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size=3, padding=1),
        scaled_norm(outputs, width, norm),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
