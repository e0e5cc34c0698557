"""The data of one device that trains an `nn.Module`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.sim.batched import BatchedGradients
from aquila.sim.data_digest import data_digest
from aquila.sim.flat_module import Batch, FlatModule
from aquila.sim.model_copies import LastTrained, ModelCopies
from aquila.sim.module_builder import ModuleBuilder

Augment = Callable[[torch.Tensor, Key], torch.Tensor]
"""(inputs, key) -> inputs changed at random"""


@dataclass(frozen=True)
class LocalWork:
    """What a device computes per round; `batch_size` None means all its samples at once."""

    batch_size: int | None
    epochs: int
    augment: Augment | None


@dataclass(frozen=True)
class ModuleShard:
    """The samples of one device and the model it trains.

    `batched` may have computed the device's gradient together with those of others. `classes`
    marks the classes that the device has samples of, if the others are masked. `builder` makes the
    module of a trained vector.
    """

    models: ModelCopies
    last_trained: LastTrained
    batched: BatchedGradients | None
    data: Batch
    work: LocalWork
    classes: torch.Tensor | None
    builder: ModuleBuilder | None = None

    @property
    def dimension(self) -> int:
        """Number of coordinates of the model that the device trains."""
        return self.models.original.theta.numel()

    @property
    def thread_safe(self) -> bool:
        """Whether devices can train at the same time; on a CPU they share one random generator."""
        model = self.models.original
        return model.theta.is_cuda or not model.uses_rng

    @property
    def samples(self) -> int:
        """Number of samples of the device."""
        return len(self.data[0])

    @property
    def digest(self) -> str:
        """Text that identifies the samples of the device."""
        return data_digest(self.data)

    def oracle(self, key: Key) -> "ModuleOracle":
        """Return the oracle of one round; the key seeds its minibatches."""
        return ModuleOracle(self, key)


@dataclass(frozen=True)
class ModuleOracle:
    """A shard in one round. It returns tensors that share no memory."""

    shard: ModuleShard
    key: Key
    returns_fresh_memory = True

    @property
    def samples(self) -> int:
        """Number of samples of the device."""
        return self.shard.samples

    def gradient(self, theta: Vector) -> tuple[float, Vector]:
        """Return the loss and gradient of the round's minibatch, or of all samples."""
        model = self._model()
        batched = self.shard.batched
        computed = None if batched is None else batched.gradient(self.shard, theta)
        if computed is not None:
            model.record_outputs(computed.outputs, self.shard.data[1])
            return computed.loss, computed.gradient
        first = next(iter(self.batches(epoch=0)))
        return model.gradient(theta, first, self.key, self.shard.classes)

    def train(self, theta: Vector, alpha: float) -> tuple[float, Vector]:
        """Run local epochs of SGD; return the mean loss and (theta - local model) / alpha."""
        batches = (
            batch for epoch in range(self.shard.work.epochs) for batch in self.batches(epoch)
        )
        model = self._model()
        loss, local = model.run_sgd(theta, batches, alpha, self.key, self.shard.classes)
        return loss, (theta - local) / alpha

    def _model(self) -> FlatModule:
        model = self.shard.models.for_this_thread
        self.shard.last_trained.update(model, self.key)
        return model

    def batches(self, epoch: int) -> Iterable[Batch]:
        """Yield the minibatches of one epoch."""
        x, y = self.shard.data
        size, key = self.shard.work.batch_size, self.key.child(epoch)
        if size is None or size >= len(x):
            yield self._augmented(x, key), y
            return
        order = torch.randperm(len(x), generator=key.torch(), pin_memory=x.is_cuda)
        order = order.to(x.device, non_blocking=True)
        for number, part in enumerate(torch.split(order, size)):
            yield self._augmented(x[part], key.child(number)), y[part]

    def _augmented(self, x: torch.Tensor, key: Key) -> torch.Tensor:
        augment = self.shard.work.augment
        return x if augment is None else augment(x, key)
