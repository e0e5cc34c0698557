"""A device whose model has several tensors, for methods that treat each tensor separately."""

from collections.abc import Sequence

import torch

import aquila


class FixedGradient:
    """An oracle with the same gradient everywhere, and the shapes of the model's tensors."""

    samples = 1

    def __init__(self, gradient: torch.Tensor, shapes: Sequence[Sequence[int]]) -> None:
        self.fixed = gradient
        self.shapes = tuple(torch.Size(shape) for shape in shapes)

    def gradient(self, theta: torch.Tensor) -> tuple[float, torch.Tensor]:
        return 1.0, self.fixed.to(theta.dtype)

    def train(self, theta: torch.Tensor, alpha: float) -> tuple[float, torch.Tensor]:
        return self.gradient(theta)


def layered_run(
    method: aquila.Method, devices: Sequence[FixedGradient], **options: object
) -> aquila.Simulation:
    """Return a simulation in float64 from zero, whose server knows the tensors."""
    dimension = len(devices[0].fixed)
    fleet = aquila.Fleet(dimension, [0] * len(devices), shapes=[devices[0].shapes])
    theta = torch.zeros(dimension, dtype=torch.float64)
    given = aquila.RunOptions(fleet=fleet, **options)
    return aquila.Simulation(method, theta, devices, options=given)
