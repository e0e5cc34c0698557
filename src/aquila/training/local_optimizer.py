"""The step of local training on flat vectors, with the formulas of `torch.optim`.

The steps change tensors in place and never wait for a GPU, so a CUDA graph can capture them.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import nn

from aquila.core.vector import Vector
from aquila.training.local_training import LocalTraining, OptimizerFactory

BETAS = 0.9, 0.999
"""Decay of Adam's two averages, as in `torch.optim`."""

EPSILON = 1e-8
"""Term in Adam's denominator, as in `torch.optim`."""

CLIP_EPSILON = 1e-6
"""Term in the denominator of clipping, as in `torch.nn.utils.clip_grad_norm_`."""


class Optimizer(Protocol):
    """Changes a model by one step along its gradient."""

    state: tuple[torch.Tensor, ...]
    """Tensors that a step changes, other than the model and its gradient."""

    def start(self, alpha: float) -> None:
        """Begin a turn without state."""

    def step(self) -> None:
        """Take one step."""


class Sgd:
    """SGD with momentum and weight decay, as `torch.optim.SGD`."""

    def __init__(self, theta: Vector, grad: Vector, training: LocalTraining) -> None:
        self._theta, self._grad, self._training = theta, grad, training
        self._alpha = theta.new_zeros(())
        # a buffer of zeros gives the first step that torch takes without a buffer
        self.state: tuple[torch.Tensor, ...] = ()
        if training.momentum:
            self.state = (torch.zeros_like(theta),)

    def start(self, alpha: float) -> None:
        """Begin a turn without momentum."""
        self._alpha.fill_(alpha)
        for tensor in self.state:
            tensor.zero_()

    def step(self) -> None:
        """Take one step."""
        direction, momentum = self._grad, self._training.momentum
        if self._training.weight_decay:
            direction.add_(self._theta, alpha=self._training.weight_decay)
        if momentum:
            buffer = self.state[0]
            buffer.mul_(momentum).add_(direction)
            nesterov = self._training.nesterov
            direction = direction.add_(buffer, alpha=momentum) if nesterov else buffer
        self._theta -= self._alpha * direction


class Adam:
    """Adam and AdamW, as `torch.optim.Adam` and `torch.optim.AdamW`."""

    def __init__(self, theta: Vector, grad: Vector, training: LocalTraining) -> None:
        self._theta, self._grad, self._training = theta, grad, training
        # in float64, because 1 - 0.999 ** count would lose digits in float32
        self._alpha, self._count = (theta.new_zeros((), dtype=torch.float64) for _ in range(2))
        self._first, self._second = torch.zeros_like(theta), torch.zeros_like(theta)
        self.state: tuple[torch.Tensor, ...] = self._count, self._first, self._second

    def start(self, alpha: float) -> None:
        """Begin a turn with averages of zero."""
        self._alpha.fill_(alpha)
        for tensor in self.state:
            tensor.zero_()

    def step(self) -> None:
        """Take one step."""
        decay = self._training.weight_decay
        if decay and self._training.local_optimizer == "adamw":
            self._theta.mul_(1 - self._alpha * decay)
        elif decay:
            self._grad.add_(self._theta, alpha=decay)
        self._count += 1
        self._first.lerp_(self._grad, 1 - BETAS[0])
        self._second.mul_(BETAS[1]).addcmul_(self._grad, self._grad, value=1 - BETAS[1])
        unbias_first, unbias_second = (1 - torch.pow(beta, self._count) for beta in BETAS)
        scale = self._second.sqrt().div_(unbias_second.sqrt()).add_(EPSILON)
        self._theta -= (self._first / scale).mul_(self._alpha / unbias_first)


class FactoryOptimizer:
    """An optimizer from the user's function, made anew in every turn."""

    state: tuple[torch.Tensor, ...] = ()

    def __init__(self, parameters: Sequence[nn.Parameter], factory: OptimizerFactory) -> None:
        self._parameters, self._factory = parameters, factory
        self._optimizer: torch.optim.Optimizer | None = None

    def start(self, alpha: float) -> None:
        """Make the optimizer of the turn."""
        self._optimizer = self._factory(self._parameters, lr=alpha)
        if not isinstance(self._optimizer, torch.optim.Optimizer):
            raise TypeError(
                "the function local_optimizer must return a torch.optim.Optimizer, not a "
                f"{type(self._optimizer).__name__}"
            )
        if isinstance(self._optimizer, torch.optim.LBFGS):
            raise TypeError(
                "local_optimizer cannot be LBFGS, which computes several gradients in one step"
            )

    def step(self) -> None:
        """Take one step."""
        if self._optimizer is not None:
            self._optimizer.step()


class LocalStep:
    """One step of local training: the proximal term, clipping and the optimizer.

    Args:
        theta: The local model; every step changes it.
        grad: The gradient of the minibatch; a step may change it.
        parameters: The parameters that are views of the model, for an optimizer of the user.
        training: The recipe.
    """

    def __init__(
        self,
        theta: Vector,
        grad: Vector,
        parameters: Sequence[nn.Parameter],
        training: LocalTraining,
    ) -> None:
        self._theta, self._grad, self._training = theta, grad, training
        self._global = torch.zeros_like(theta) if training.prox else None
        self._optimizer: Optimizer
        if not isinstance(training.local_optimizer, str):
            self._optimizer = FactoryOptimizer(parameters, training.local_optimizer)
        elif training.local_optimizer == "sgd":
            self._optimizer = Sgd(theta, grad, training)
        else:
            self._optimizer = Adam(theta, grad, training)

    @property
    def state(self) -> tuple[torch.Tensor, ...]:
        """Tensors that a step changes, other than the model and its gradient."""
        return self._optimizer.state

    @property
    def fits_graph(self) -> bool:
        """Whether a CUDA graph can capture the step."""
        return not isinstance(self._optimizer, FactoryOptimizer)

    def start(self, theta: Vector, alpha: float) -> None:
        """Begin a turn at the global model, with a fresh optimizer."""
        if self._global is not None:
            self._global.copy_(theta)
        self._optimizer.start(alpha)

    @torch.no_grad()
    def take(self) -> None:
        """Change the model by one step along its gradient."""
        if self._global is not None:
            self._grad.add_(self._theta - self._global, alpha=self._training.prox)
        clip_norm(self._grad, self._training.clip)
        self._optimizer.step()


def clip_norm(grad: Vector, limit: float) -> None:
    """Scale a gradient down to a norm, in place; a limit of 0 changes nothing."""
    if limit:
        norm = torch.linalg.vector_norm(grad)
        grad.mul_((limit / (norm + CLIP_EPSILON)).clamp_(max=1.0))


def regularize(gradient: Vector, theta: Vector, training: LocalTraining) -> None:
    """Clip the gradient of a device that takes no local step, and add weight decay, in place."""
    clip_norm(gradient, training.clip)
    if training.weight_decay:
        gradient.add_(theta, alpha=training.weight_decay)
