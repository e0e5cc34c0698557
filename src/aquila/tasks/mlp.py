"""A multilayer perceptron (Rumelhart, Hinton, Williams, Nature 1986).

Narrower widths follow HeteroFL (Diao et al., ICLR 2021, arXiv 2010.01264).
"""

from typing import Annotated

from torch import nn

from aquila.core.parameter import Bounds
from aquila.tasks.widths import Classes, Scaler, Width, narrow


def mlp(
    inputs: Annotated[int, Bounds("numbers per sample", 1)] = 64,
    hidden: Annotated[int, Bounds("units in the hidden layer", 1)] = 128,
    classes: Classes = 10,
    width: Width = 1.0,
) -> nn.Module:
    """Return a network with one hidden layer."""
    units = narrow(hidden, width)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, units),
        Scaler(width),
        nn.ReLU(),
        nn.Linear(units, classes),
    )
