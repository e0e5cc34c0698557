"""Any `nn.Module` and any tensors as a federated problem."""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from aquila.core.random import Key
from aquila.core.vector import Vector

Batch = tuple[torch.Tensor, torch.Tensor]
"""Inputs and targets."""

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(outputs, targets) -> mean loss"""

CHUNK = 2048
"""Samples in one pass through the module; larger batches add up their gradients."""


class FlatModule:
    """A copy of a module whose parameters and gradients are views of two flat vectors."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        _refuse_running_statistics(module)
        self.module = copy.deepcopy(module)
        self.loss = loss
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.theta = torch.cat([p.detach().reshape(-1) for p in parameters])
        self.grad = torch.zeros_like(self.theta)
        start = 0
        for p in parameters:
            end = start + p.numel()
            p.data = self.theta[start:end].view_as(p)
            p.grad = self.grad[start:end].view_as(p)
            start = end

    def gradient(self, theta: Vector, batch: Batch, key: Key) -> tuple[float, Vector]:
        """Return the mean loss over a batch and its gradient; the key draws dropout masks."""
        self._load(theta)
        self.grad.zero_()
        self.module.train()
        x, y = batch
        loss = 0.0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key.torch().initial_seed())
            for start in range(0, len(x), CHUNK):
                part = slice(start, start + CHUNK)
                share = len(x[part]) / len(x)
                value = self.loss(self.module(x[part]), y[part]) * share
                value.backward()  # type: ignore[no-untyped-call]
                loss += float(value.detach())
        return loss, self.grad.clone()

    @torch.no_grad()
    def evaluate(self, theta: Vector, batch: Batch) -> dict[str, float]:
        """Return the loss on a batch, and the accuracy where targets are classes."""
        self._load(theta)
        self.module.eval()
        x, y = batch
        outputs = torch.cat([self.module(part) for part in torch.split(x, CHUNK)])
        metrics = {"test_loss": float(self.loss(outputs, y))}
        if not y.is_floating_point() and outputs.ndim == y.ndim + 1:
            metrics["test_accuracy"] = float((outputs.argmax(-1) == y).double().mean())
        return metrics

    def _load(self, theta: Vector) -> None:
        with torch.no_grad():
            self.theta.copy_(theta)


@dataclass(frozen=True)
class ModuleShard:
    """The samples of one device; `batch_size` None means all of them at once."""

    model: FlatModule
    data: Batch
    batch_size: int | None
    epochs: int

    def oracle(self, key: Key) -> "ModuleOracle":
        """Draw the round's minibatches."""
        return ModuleOracle(self, key)


@dataclass(frozen=True)
class ModuleOracle:
    """A shard in one round."""

    shard: ModuleShard
    key: Key

    @property
    def samples(self) -> int:
        """Number of samples of the device."""
        return len(self.shard.data[0])

    def gradient(self, theta: Vector) -> tuple[float, Vector]:
        """Return loss and gradient on the round's minibatch, or on all samples."""
        first = next(iter(self._batches(epoch=0)))
        return self.shard.model.gradient(theta, first, self.key)

    def train(self, theta: Vector, alpha: float) -> tuple[float, Vector]:
        """Run local epochs of SGD; return the mean loss and the way divided by alpha."""
        local, losses = theta, []
        for epoch in range(self.shard.epochs):
            for number, batch in enumerate(self._batches(epoch)):
                loss, gradient = self.shard.model.gradient(
                    local, batch, self.key.child(epoch, number)
                )
                local = local - alpha * gradient
                losses.append(loss)
        return sum(losses) / len(losses), (theta - local) / alpha

    def _batches(self, epoch: int) -> Iterable[Batch]:
        x, y = self.shard.data
        size = self.shard.batch_size
        if size is None or size >= len(x):
            yield x, y
            return
        order = torch.randperm(len(x), generator=self.key.child(epoch).torch()).to(x.device)
        for part in torch.split(order, size):
            yield x[part], y[part]


@dataclass(frozen=True)
class Problem:
    """What `simulate` needs: a first model, devices, and a way to judge a model."""

    theta0: Vector
    devices: tuple[ModuleShard, ...]
    evaluate: Callable[[Vector], dict[str, float]] | None


def problem(
    module: nn.Module,
    shards: Sequence[Batch],
    test: Batch | None = None,
    *,
    loss: Loss = nn.functional.cross_entropy,
    batch_size: int | None = None,
    epochs: int = 1,
) -> Problem:
    """Make a federated problem of a module and one (inputs, targets) pair a device.

    `batch_size` None gives full gradients; a number gives minibatch gradients, and the minibatches
    of local epochs.
    """
    for number, (x, y) in enumerate(shards):
        if len(x) == 0 or len(x) != len(y):
            raise ValueError(f"shard {number} has {len(x)} inputs and {len(y)} targets")
    model = FlatModule(module, loss)
    devices = tuple(ModuleShard(model, data, batch_size, epochs) for data in shards)
    evaluate = None if test is None else lambda theta: model.evaluate(theta, test)
    return Problem(model.theta.clone(), devices, evaluate)


def _refuse_running_statistics(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if getattr(part, "track_running_stats", False):
            raise ValueError(
                f"{name or 'the module'} keeps running statistics, which differ from device to "
                "device and are never sent; build it with track_running_stats=False"
            )
