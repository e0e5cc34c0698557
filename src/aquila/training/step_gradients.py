"""The gradients of one training step, in one flat vector."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from aquila.core.vector import Vector


class StepGradients:
    """Computes the gradients of a step in place of those of the step before.

    torch adds to the gradient that a parameter has, with a kernel per parameter. A parameter
    without one just takes the new tensor. So on a GPU it is faster to let the parameters have none,
    and to copy all of them to the vector at once.

    Args:
        vector: The flat gradient.
        parameters: The parameters, in the order of the vector. Their gradients are its parts.
        copies: Whether to copy new gradients, instead of adding them to zero.
    """

    def __init__(self, vector: Vector, parameters: Sequence[nn.Parameter], copies: bool) -> None:
        self._vector, self._parameters, self._copies = vector, parameters, copies
        self._parts = torch.split(vector, [parameter.numel() for parameter in parameters])

    def of(self, backward: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Call a function that runs a backward pass, and return its result."""
        if not self._copies:
            self._vector.zero_()
            return backward()
        views = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        try:
            result = backward()
            self._copy()
        finally:
            for parameter, view in zip(self._parameters, views, strict=True):
                parameter.grad = view
        return result

    @torch.no_grad()
    def _copy(self) -> None:
        """Copy the gradients of the parameters to the vector; those without one get zeros."""
        parts, gradients = [], []
        for part, parameter in zip(self._parts, self._parameters, strict=True):
            if parameter.grad is None:
                part.zero_()
            else:
                parts.append(part)
                gradients.append(parameter.grad.reshape(-1))
        torch._foreach_copy_(parts, gradients)
