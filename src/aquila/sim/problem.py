"""A federated problem made from an `nn.Module` and the data of each device."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import torch
from torch import nn

from aquila.core.fleet import Fleet
from aquila.core.method import Method
from aquila.core.parameter import check_whole_number
from aquila.core.vector import Vector
from aquila.runtime.options import RunOptions
from aquila.sim.callbacks import OnRecord
from aquila.sim.simulate import Run, simulate
from aquila.tasks.widths import submodel_coordinates
from aquila.training.batched import BatchedGradients
from aquila.training.evaluator import Evaluator
from aquila.training.flat_module import FlatModule, Precision
from aquila.training.local_training import LocalTraining
from aquila.training.losses import Loss, check_loss
from aquila.training.model_copies import LastTrained, ModelCopies
from aquila.training.module_builder import BatchNormStatistics, ModuleBuilder
from aquila.training.module_shard import Augment, LocalWork, ModuleShard
from aquila.training.read_shards import Shard, read_shards
from aquila.training.shard_data import ShardData, TensorData
from aquila.training.target_checks import seen_classes


@dataclass(frozen=True, repr=False)
class Problem:
    """What `simulate` needs: the initial model, the devices, the fleet and an evaluator.

    `builder` makes modules from trained models.
    """

    theta0: Vector
    devices: tuple[ModuleShard, ...]
    fleet: Fleet
    evaluate: Evaluator | None
    builder: ModuleBuilder

    def train(
        self,
        method: Method,
        rounds: int = 50,
        seed: int = 0,
        *,
        on_record: OnRecord | None = None,
        options: RunOptions = RunOptions(),
    ) -> Run:
        """Train with a method: `simulate` with the model, devices and evaluator of the problem."""
        return simulate(
            method,
            self.theta0,
            self.devices,
            rounds,
            seed,
            evaluate=self.evaluate,
            on_record=on_record,
            options=replace(options, fleet=options.fleet or self.fleet),
        )

    def load(self, theta: Vector, device: int | None = None) -> nn.Module:
        """Return a copy of the module in eval mode with trained parameters, such as `run.theta`.

        Frozen parameters and buffers are those of the module given to `problem`, and batch norms
        have statistics. If devices train narrower modules, the copy is of the widest one, or of
        the one that `device` trains.
        """
        expected = tuple(self.theta0.shape)
        if not isinstance(theta, torch.Tensor) or theta.shape != expected:
            given = f"shape {tuple(theta.shape)}" if isinstance(theta, torch.Tensor) else theta
            raise ValueError(
                f"theta must be a vector of the {self.theta0.numel()} trained parameters, such as "
                f"run.theta, not {given}"
            )
        if device is not None and device not in self.fleet.devices:
            raise ValueError(f"device must be from 0 to {len(self.devices) - 1}, not {device}")
        return self.builder.module_for(theta.to(self.theta0.device), device)

    def __repr__(self) -> str:
        counts = [device.samples for device in self.devices]
        known = [count for count in counts if count is not None]
        tested = None if self.evaluate is None else self.evaluate.test.samples
        devices = f"{len(counts):,} device{'s' if len(counts) > 1 else ''}"
        samples = f" with {sum(known):,} samples" if len(known) == len(counts) else ""
        test = "" if tested is None else f", {tested:,} test samples"
        return f"Problem({self.theta0.numel():,} parameters, {devices}{samples}{test})"


@dataclass(frozen=True)
class ProblemOptions:
    """Further options of `problem`.

    Args:
        narrower: Further modules. Each is a part of the first in every axis of every parameter.
        groups: The module that each device trains: 0 is the first, 1 the first of `narrower`.
            Default: every device trains the first.
        classes: Number of classes. If set, the logits of classes that a device has no samples of
            are zero while it trains, as in HeteroFL.
        augment: Function (inputs, key) -> inputs that changes training inputs at random.
        device: Where to compute: `cpu` or `cuda`.
        precision: Arithmetic of the layers on a GPU: `float32`, `tf32` or `bf16`.
        compile_model: Let torch compile the module. This takes half a minute and pays on a GPU.
        batch_norm: Statistics of batch norms in evaluations and in trained modules: `gathered`
            over the pooled training inputs, `averaged` over the statistics of each device, or
            `local`, where each device uses its own and metrics are the mean over devices.
    """

    narrower: Sequence[nn.Module] = ()
    groups: Sequence[int] | None = None
    classes: int | None = None
    augment: Augment | None = None
    device: torch.device | str = "cpu"
    precision: Precision = "float32"
    compile_model: bool = False
    batch_norm: BatchNormStatistics = "gathered"

    def __post_init__(self) -> None:
        if torch.device(self.device).index is not None:
            raise ValueError(
                f"device must be cpu or cuda, not {self.device}; choose a GPU by "
                "CUDA_VISIBLE_DEVICES"
            )
        if self.precision not in get_args(Precision):
            raise ValueError(
                f"precision must be one of {', '.join(get_args(Precision))}, not {self.precision!r}"
            )
        if self.batch_norm not in get_args(BatchNormStatistics):
            raise ValueError(
                f"batch_norm must be one of {', '.join(get_args(BatchNormStatistics))}, not "
                f"{self.batch_norm!r}"
            )


def problem(
    module: nn.Module,
    shards: Sequence[Shard],
    test: Shard | None = None,
    *,
    loss: Loss = nn.functional.cross_entropy,
    batch_size: int | None = None,
    epochs: int = 1,
    training: LocalTraining = LocalTraining(),
    options: ProblemOptions = ProblemOptions(),
) -> Problem:
    """Make a federated problem from a module and the data of each device.

    Args:
        module: The model to train. It is copied, not changed. Frozen parameters stay as they are.
        shards: The samples of each device: a pair of inputs and targets, as tensors or NumPy
            arrays, a dict of inputs, a `Dataset` of pairs or dicts, or a `DataLoader`. Inputs are
            a tensor, a tuple or a dict. Without targets, the module computes the loss itself.
        test: Samples to evaluate the model on, in one of these forms.
        loss: Function (outputs, targets) -> mean loss.
        batch_size: Samples per minibatch, for gradients and local epochs. None: all samples. A
            `DataLoader` has its own batches.
        epochs: Local epochs per round, for methods that train locally.
        training: Local optimizer, clipping, local steps and proximal term.
        options: Model widths, augmentation, device and precision.
    """
    _check_module(module)
    _check_work(loss, batch_size, epochs, training)
    slices = [None, *(submodel_coordinates(module, part) for part in options.narrower)]
    models = [
        ModelCopies(
            FlatModule(m, loss, options.device, options.precision, options.compile_model, training)
        )
        for m in (module, *options.narrower)
    ]
    first, last_trained = models[0].original, LastTrained()
    trained, tested = read_shards(shards, test, [model.original for model in models], batch_size)
    groups = _checked_groups(options.groups, len(trained), len(models))
    seen: list[torch.Tensor] = []
    if options.classes is not None:
        seen = seen_classes(trained, tested, options.classes, first.objective.class_layout)
    work = LocalWork(batch_size, epochs, options.augment, training)
    shapes = [model.original.shapes for model in models]
    fleet = Fleet(first.theta.numel(), groups, slices, options.device, shapes=shapes)
    builder = ModuleBuilder([m.original for m in models], fleet, trained, options.batch_norm)
    devices = _make_shards(models, groups, last_trained, trained, seen, work)
    devices = tuple(replace(shard, builder=builder) for shard in devices)
    evaluator = None
    if tested is not None:
        evaluator = Evaluator(first, last_trained, tested, builder, seen, batch_size)
    return Problem(first.theta.clone(), devices, fleet, evaluator, builder)


def _make_shards(
    models: Sequence[ModelCopies],
    groups: Sequence[int],
    last_trained: LastTrained,
    samples: Sequence[ShardData],
    seen: Sequence[torch.Tensor],
    work: LocalWork,
) -> tuple[ModuleShard, ...]:
    full_gradients = work.batch_size is None and work.augment is None and not seen
    full_gradients &= all(isinstance(data, TensorData) for data in samples)
    batched = [_batched_gradients(model.original) if full_gradients else None for model in models]
    return tuple(
        ModuleShard(
            models[group], last_trained, batched[group], data, work, seen[m] if seen else None
        )
        for m, (group, data) in enumerate(zip(groups, samples, strict=True))
    )


def _batched_gradients(model: FlatModule) -> BatchedGradients | None:
    """Return the gradients of many devices in one pass, where that gives the same bits."""
    plain = model.theta.is_cpu and model.precision == "float32" and not model.compile_model
    fixed = not model.uses_rng and not model.changing_buffers
    return BatchedGradients(model) if plain and fixed and model.captures_steps else None


def _check_work(loss: Loss, batch_size: int | None, epochs: int, training: LocalTraining) -> None:
    check_loss(loss)
    if not isinstance(training, LocalTraining):
        raise TypeError(f"training must be aquila.LocalTraining(...), not {training!r}")
    if batch_size is not None:
        check_whole_number("batch_size (None: all samples)", batch_size, 1)
    check_whole_number("epochs", epochs, 1)


def _check_module(module: object) -> None:
    if isinstance(module, type):
        raise TypeError(f"module is the class {module.__name__}; pass an instance")
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be an nn.Module, not {type(module).__name__}")


def _checked_groups(groups: Sequence[int] | None, shards: int, modules: int) -> Sequence[int]:
    if groups is None:
        return [0] * shards
    if len(groups) != shards:
        raise ValueError(f"groups has {len(groups)} entries, but there are {shards} shards")
    if not all(0 <= group < modules for group in groups):
        raise ValueError(f"each entry of groups must be a module number from 0 to {modules - 1}")
    return groups
