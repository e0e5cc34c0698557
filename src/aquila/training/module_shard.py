"""The data of one device that trains an `nn.Module`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import torch

from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.training.batched import BatchedGradients
from aquila.training.class_rows import owned_rows
from aquila.training.data_digest import data_digest
from aquila.training.flat_module import FlatModule
from aquila.training.inputs import Batch, TensorBatch
from aquila.training.local_optimizer import regularize
from aquila.training.local_training import LocalTraining
from aquila.training.model_copies import LastTrained, ModelCopies
from aquila.training.module_builder import ModuleBuilder
from aquila.training.shard_data import ShardData, TensorData

Augment = Callable[[Any, Key], Any]
"""(inputs, key) -> inputs changed at random"""

TOO_FEW_FOR_BATCH_NORM = "Expected more than 1 value per channel"
"""Start of torch's message."""


@dataclass(frozen=True)
class LocalWork:
    """What a device computes per round; `batch_size` None means all its samples at once."""

    batch_size: int | None
    epochs: int
    augment: Augment | None
    training: LocalTraining = LocalTraining()

    @property
    def fingerprint(self) -> str:
        """The work as text, with a line per property; 0 stands for all samples."""
        lines = {**self._length(), **self.training.changes()}.items()
        return "".join(f"\n{name} {value}" for name, value in lines)

    def to_dict(self) -> dict[str, object]:
        """Return the work by name, for `run.json`; batch size 0 stands for all samples."""
        return {**self._length(), **self.training.to_dict()}

    def _length(self) -> dict[str, object]:
        return {"batch_size": self.batch_size or 0, "epochs": self.epochs}


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
    data: ShardData
    work: LocalWork
    classes: torch.Tensor | None
    builder: ModuleBuilder | None = None

    @property
    def dimension(self) -> int:
        """Number of coordinates of the model that the device trains."""
        return self.models.original.theta.numel()

    @property
    def samples(self) -> int | None:
        """Number of samples of the device, None for a stream without a length."""
        return self.data.samples

    @property
    def tensors(self) -> TensorBatch:
        """Inputs and targets of a device whose samples are one pair of tensors."""
        x, y = self.data.batch if isinstance(self.data, TensorData) else (None, None)
        if not isinstance(x, torch.Tensor) or y is None:
            raise TypeError(f"{self.data.name} is not a pair of tensors")
        return x, y

    @property
    def owned_rows(self) -> dict[int, torch.Tensor]:
        """Masks of the rows of class tensors that belong to this device, by tensor."""
        return owned_rows(self.models.original, self.data)

    @property
    def thread_safe(self) -> bool:
        """Whether devices can train at the same time.

        On a CPU they share one random generator. A Dataset or a DataLoader may not be thread-safe.
        """
        model = self.models.original
        in_memory = isinstance(self.data, TensorData)
        return in_memory and (model.theta.is_cuda or not model.uses_rng)

    @property
    def digest(self) -> str:
        """Text that identifies the samples of the device."""
        if isinstance(self.data, TensorData):
            return data_digest(self.data.batch)
        return data_digest((type(self.data).__name__, self.data.samples))

    def oracle(self, key: Key) -> "ModuleOracle":
        """Return the oracle of one round; the key seeds its minibatches."""
        return ModuleOracle(self, key)


def shared_work(devices: Sequence[object]) -> dict[str, object]:
    """Return batch size, epochs and local training by name, if all devices have the same."""
    works = [getattr(getattr(device, "inner", device), "work", None) for device in devices]
    first = works[0]
    if not isinstance(first, LocalWork) or any(work != first for work in works):
        return {}
    return first.to_dict()


@dataclass(frozen=True)
class ModuleOracle:
    """A shard in one round. It returns tensors that share no memory."""

    shard: ModuleShard
    key: Key
    returns_fresh_memory = True

    @property
    def samples(self) -> int:
        """Number of samples of the device; ValueError for a stream without a length."""
        if self.shard.samples is None:
            raise ValueError(
                f"{self.shard.data.name} is a stream without a length, so devices cannot be "
                "weighted by samples; use uniform weights"
            )
        return self.shard.samples

    @property
    def shapes(self) -> tuple[torch.Size, ...]:
        """Shapes of the model's tensors."""
        return self.shard.models.original.shapes

    def gradient(self, theta: Vector) -> tuple[float, Vector]:
        """Return the loss and gradient of the round's minibatch, or of all samples.

        The gradient is clipped and includes the weight decay. ValueError if the local training
        has options that need local steps.
        """
        training = self.shard.work.training
        training.check_gradient("create the method with work='epochs'")
        loss, gradient = self._loss_gradient(theta)
        if training.clip or training.weight_decay:
            regularize(gradient, theta, training)
        return loss, gradient

    def _loss_gradient(self, theta: Vector) -> tuple[float, Vector]:
        model = self._model()
        batched = self.shard.batched
        computed = None if batched is None else batched.gradient(self.shard, theta)
        if computed is not None:
            model.record_outputs_later(lambda: (computed.outputs, *self.shard.tensors))
            return computed.loss, computed.gradient
        first = next(iter(self.batches(epoch=0)))
        with self._named_batch_norm_error():
            return model.gradient(theta, first, self.key, self.shard.classes)

    def train(self, theta: Vector, alpha: float) -> tuple[float, Vector]:
        """Train locally; return the mean loss and (theta - local model) / alpha."""
        model, classes = self._model(), self.shard.classes
        with self._named_batch_norm_error():
            loss, local = model.train(theta, self._all_batches(), alpha, self.key, classes)
        return loss, (theta - local) / alpha

    @contextmanager
    def _named_batch_norm_error(self) -> Iterator[None]:
        """Name the device whose minibatch has too few samples for a batch norm."""
        try:
            yield
        except ValueError as error:
            if not str(error).startswith(TOO_FEW_FOR_BATCH_NORM):
                raise
            raise ValueError(
                f"{self.shard.data.name} has a minibatch of one sample, but batch norms need two; "
                "change batch_size, or add or remove a sample"
            ) from error

    def _all_batches(self) -> Iterable[Batch]:
        """Yield the minibatches of the turn: those of whole epochs, or as many as local steps."""
        work = self.shard.work
        steps = work.training.local_steps
        epochs = count() if steps else range(work.epochs)
        batches = (batch for epoch in epochs for batch in self.batches(epoch))
        return islice(batches, steps) if steps else batches

    def _model(self) -> FlatModule:
        model = self.shard.models.for_this_thread
        self.shard.last_trained.update(model, self.key, self)
        return model

    def loss(self, theta: Vector, all_samples: bool) -> float:
        """Return the loss over all samples of the device, or over the round's first minibatch."""
        model = self.shard.models.for_this_thread
        batches = islice(self.batches(epoch=0), None if all_samples else 1)
        return model.mean_loss(theta, batches, self.key, self.shard.classes)

    def batches(self, epoch: int) -> Iterable[Batch]:
        """Yield the minibatches of one epoch."""
        size, augment = self.shard.work.batch_size, self.shard.work.augment
        for key, (x, y) in self.shard.data.minibatches(size, self.key.child(epoch)):
            yield (x if augment is None else augment(x, key)), y
