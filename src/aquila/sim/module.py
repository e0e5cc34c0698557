"""Any `nn.Module` and any tensors as a federated problem."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import nn

from aquila.core.fleet import Fleet
from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.sim.batched import BatchedGradients
from aquila.sim.evaluator import Evaluator
from aquila.sim.flat_module import Batch, FlatModule, Precision
from aquila.sim.losses import Loss, check_loss
from aquila.sim.model_copies import LastTrained, ModelCopies
from aquila.sim.shards import check_samples, prepare_samples, seen_classes
from aquila.tasks.widths import submodel_coordinates

Augment = Callable[[torch.Tensor, Key], torch.Tensor]
"""(inputs, key) -> inputs, changed at random"""


@dataclass(frozen=True)
class ModuleShard:
    """The samples of one device; `batch_size` None means all of them at once.

    `batched` may have computed the device's gradient along with those of others.
    """

    models: ModelCopies
    last_trained: LastTrained
    batched: BatchedGradients | None
    data: Batch
    batch_size: int | None
    epochs: int
    classes: torch.Tensor | None = None
    augment: Augment | None = None

    @property
    def dimension(self) -> int:
        """Coordinates of the model that the device trains."""
        return self.models.original.theta.numel()

    @property
    def thread_safe(self) -> bool:
        """Whether it may be trained while others are: a CPU has but one generator to draw from."""
        model = self.models.original
        return model.theta.is_cuda or not model.uses_rng

    def oracle(self, key: Key) -> "ModuleOracle":
        """Draw the round's minibatches."""
        return ModuleOracle(self, key)


@dataclass(frozen=True)
class ModuleOracle:
    """A shard in one round; its answers are the caller's own."""

    shard: ModuleShard
    key: Key
    returns_fresh_memory = True

    @property
    def samples(self) -> int:
        """Number of samples of the device."""
        return len(self.shard.data[0])

    def gradient(self, theta: Vector) -> tuple[float, Vector]:
        """Return loss and gradient on the round's minibatch, or on all samples."""
        model = self._model()
        batched = self.shard.batched
        computed = None if batched is None else batched.gradient(self.shard, theta)
        if computed is not None:
            model.record_outputs(computed.outputs, self.shard.data[1])
            return computed.loss, computed.gradient
        first = next(iter(self.batches(epoch=0)))
        return model.gradient(theta, first, self.key, self.shard.classes)

    def train(self, theta: Vector, alpha: float) -> tuple[float, Vector]:
        """Run local epochs of SGD; return the mean loss and the way divided by alpha."""
        batches = (batch for epoch in range(self.shard.epochs) for batch in self.batches(epoch))
        model = self._model()
        loss, local = model.run_sgd(theta, batches, alpha, self.key, self.shard.classes)
        return loss, (theta - local) / alpha

    def _model(self) -> FlatModule:
        model = self.shard.models.for_this_thread
        self.shard.last_trained.update(model, self.key)
        return model

    def batches(self, epoch: int) -> Iterable[Batch]:
        """Yield the minibatches of an epoch."""
        x, y = self.shard.data
        size, key = self.shard.batch_size, self.key.child(epoch)
        if size is None or size >= len(x):
            yield self._augmented(x, key), y
            return
        order = torch.randperm(len(x), generator=key.torch(), pin_memory=x.is_cuda)
        order = order.to(x.device, non_blocking=True)
        for number, part in enumerate(torch.split(order, size)):
            yield self._augmented(x[part], key.child(number)), y[part]

    def _augmented(self, x: torch.Tensor, key: Key) -> torch.Tensor:
        return x if self.shard.augment is None else self.shard.augment(x, key)


@dataclass(frozen=True)
class Problem:
    """What `simulate` needs: a first model, devices, the fleet, and a way to judge a model."""

    theta0: Vector
    devices: tuple[ModuleShard, ...]
    fleet: Fleet
    evaluate: Evaluator | None


def problem(
    module: nn.Module,
    shards: Sequence[Batch],
    test: Batch | None = None,
    *,
    loss: Loss = nn.functional.cross_entropy,
    batch_size: int | None = None,
    epochs: int = 1,
    narrower: Sequence[nn.Module] = (),
    groups: Sequence[int] | None = None,
    classes: int | None = None,
    augment: Augment | None = None,
    device: torch.device | str = "cpu",
    precision: Precision = "float32",
    compile_model: bool = False,
) -> Problem:
    """Make a federated problem of a module and one (inputs, targets) pair a device.

    `batch_size` None gives full gradients; a number gives minibatch gradients, and the minibatches
    of local epochs. `narrower` are further modules, each a part of the first in every axis of every
    parameter, and `groups` says which one each device trains (0: the first). With `classes`, the
    logits of classes a device has no sample of are set to zero while it trains, as in HeteroFL.
    `compile_model` has torch compile the module, which takes half a minute and pays on a GPU.
    """
    check_samples(shards, test)
    groups = _checked_groups(groups, len(shards), 1 + len(narrower))
    _check_options(loss, batch_size, epochs, precision, device)
    slices = [None, *(submodel_coordinates(module, part) for part in narrower)]
    models = [
        ModelCopies(FlatModule(m, loss, device, precision, compile_model))
        for m in (module, *narrower)
    ]
    first, last_trained = models[0].original, LastTrained()
    samples = prepare_samples(shards, test, [model.original for model in models])
    trained, tested = samples[: len(shards)], None if test is None else samples[-1]
    seen = [] if classes is None else seen_classes(trained, tested, classes, first.class_layout)
    devices = _make_shards(models, last_trained, groups, trained, seen, batch_size, epochs, augment)
    fleet = Fleet(first.theta.numel(), groups, slices, device)
    evaluator = None
    if tested is not None:
        evaluator = Evaluator(first, last_trained, tested, torch.cat([x for x, _ in trained]), seen)
    return Problem(first.theta.clone(), devices, fleet, evaluator)


def _make_shards(
    models: Sequence[ModelCopies],
    last_trained: LastTrained,
    groups: Sequence[int],
    samples: Sequence[Batch],
    seen: Sequence[torch.Tensor],
    batch_size: int | None,
    epochs: int,
    augment: Augment | None,
) -> tuple[ModuleShard, ...]:
    whole = batch_size is None and augment is None and not seen
    batched = [_batched_gradients(model.original) if whole else None for model in models]
    return tuple(
        ModuleShard(
            models[group], last_trained, batched[group], data,
            batch_size, epochs, seen[m] if seen else None, augment,
        )
        for m, (group, data) in enumerate(zip(groups, samples, strict=True))
    )  # fmt: skip


def _batched_gradients(model: FlatModule) -> BatchedGradients | None:
    """Return who computes for many devices at once, for a model that bears it."""
    plain = model.theta.is_cpu and model.precision == "float32" and not model.compile_model
    return BatchedGradients(model) if plain and not model.uses_rng else None


def _check_options(
    loss: Loss,
    batch_size: int | None,
    epochs: int,
    precision: Precision,
    device: torch.device | str,
) -> None:
    check_loss(loss)
    if torch.device(device).index is not None:
        raise ValueError(f"device {device} names one GPU; choose it by CUDA_VISIBLE_DEVICES")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, or None for all, not {batch_size}")
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, not {epochs}")
    if precision not in get_args(Precision):
        raise ValueError(
            f"precision must be one of {', '.join(get_args(Precision))}, not {precision!r}"
        )


def _checked_groups(groups: Sequence[int] | None, shards: int, modules: int) -> Sequence[int]:
    if groups is None:
        return [0] * shards
    if len(groups) != shards:
        raise ValueError(f"groups names {len(groups)} devices, but there are {shards} shards")
    if not all(0 <= group < modules for group in groups):
        raise ValueError(f"groups must be from 0 to {modules - 1}, one for each module")
    return groups
