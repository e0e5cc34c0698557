"""A module as one flat vector: gradients and local steps without per-parameter copies."""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import nn

from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.sim.cuda_graph import RNG_LOCK, StepGraphs
from aquila.sim.local_optimizer import LocalStep
from aquila.sim.local_training import LocalTraining
from aquila.sim.losses import ClassLayout, Loss, is_mean_over_samples
from aquila.sim.torch_threads import torch_threads
from aquila.tasks.models import has_batch_norm

Batch = tuple[torch.Tensor, torch.Tensor]
"""Inputs and targets."""

Precision = Literal["float32", "tf32", "bf16"]
"""Arithmetic of the layers: float32, TensorFloat-32 products on a GPU, or bfloat16."""

MAX_PASS_TARGETS = 8192
"""Targets per pass through the module; larger batches accumulate gradients."""

CACHE_BYTES = 2**23
"""Bytes that one pass on a CPU may save for the backward pass, so that they stay in cache."""

MIN_PASS_SAMPLES = 16
"""Smallest number of samples per pass, however many bytes they save."""

MIN_THREADED_PARAMETERS = 2**24
"""Smallest model with dropout for which torch uses several threads per operation on a CPU."""


class FlatModule:
    """A copy of a module whose parameters and gradients are views of two flat vectors.

    `probe` finds out whether training draws random numbers (`uses_rng`), and how many bytes per
    sample the forward pass saves for the backward pass. `class_layout` describes how the loss
    reads classes. The caller sets it once the targets are known, with the ignored target.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        device: torch.device | str = "cpu",
        precision: Precision = "float32",
        compile_model: bool = False,
        training: LocalTraining = LocalTraining(),
    ) -> None:
        _check_no_running_statistics(module)
        self.module = copy.deepcopy(module).to(device).train()
        self.loss = loss
        self.class_layout = ClassLayout.of(loss)
        self.precision = precision
        self.compile_model = compile_model
        self.training = training
        self.uses_rng = True
        self._saved_bytes = 0
        self._flatten_parameters()
        self._accuracy = torch.zeros((), device=device)
        self._last_outputs: Batch | None = None
        self._targets_are_classes = False
        # batch norms compute statistics of the whole batch, so the batch must not be split
        self._has_batch_norms = has_batch_norm(module)
        self._is_mean_over_samples = is_mean_over_samples(loss)
        self._loss_sum = self.theta.new_zeros(())
        trained = [p for p in self.module.parameters() if p.requires_grad]
        self._local_step = LocalStep(self.theta, self.grad, trained, training)
        mutated = (self.theta, self.grad, self._accuracy, self._loss_sum, *self._local_step.state)
        uses_graphs = self.theta.is_cuda and self._local_step.fits_graph
        self._graphs = StepGraphs(self._step, mutated) if uses_graphs else None
        self._loss_function = (
            torch.compile(self._compute_loss) if compile_model else self._compute_loss
        )

    def _flatten_parameters(self) -> None:
        """Move parameters and gradients into two flat vectors."""
        trained = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        if not trained:
            raise ValueError("the module has no parameters to train")
        self.theta = torch.cat([p.detach().reshape(-1) for p in trained.values()])
        self.grad = torch.zeros_like(self.theta)
        self._shapes = {name: p.shape for name, p in trained.items()}
        data, gradients = self.parameter_views(self.theta), self.parameter_views(self.grad)
        for name, parameter in trained.items():
            parameter.data, parameter.grad = data[name], gradients[name]

    def copy(self) -> "FlatModule":
        """Return a copy that shares no memory with this one."""
        copied = FlatModule(
            self.module, self.loss, self.theta.device, self.precision, self.compile_model,
            self.training,
        )  # fmt: skip
        copied.uses_rng, copied._saved_bytes = self.uses_rng, self._saved_bytes
        copied.class_layout = self.class_layout
        return copied

    def parameter_views(self, vector: Vector) -> dict[str, torch.Tensor]:
        """Return views of a flat vector as named parameters."""
        parts = torch.split(vector, [shape.numel() for shape in self._shapes.values()])
        shapes = zip(self._shapes.items(), parts, strict=True)
        return {name: part.view(shape) for (name, shape), part in shapes}

    def probe(self, x: torch.Tensor) -> torch.Size:
        """Learn from a pass over inputs what training does; return the shape of the outputs."""
        parameters, saved = self.theta.untyped_storage().data_ptr(), {}

        def record_saved(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.untyped_storage().data_ptr() != parameters:
                saved[tensor.data_ptr()] = tensor.nbytes
            return tensor.detach()  # an output itself would keep its graph alive

        with (
            self._seeded(Key((0,))),
            torch.autograd.graph.saved_tensors_hooks(record_saved, lambda tensor: tensor),
        ):
            before = _generator_state(x.device)
            outputs = self.outputs(channels_last(x), self.module)  # not compiled: an unusual shape
            self.uses_rng = not before.equal(_generator_state(x.device))
            shape = outputs.shape
            del outputs
        self._saved_bytes = sum(saved.values()) // len(x)
        return shape

    def outputs_shape(self, x: torch.Tensor) -> torch.Size:
        """Return the shape of the outputs for inputs of another shape than the probe's."""
        with self._seeded(Key((0,))):
            return self.outputs(channels_last(x), self.module).shape

    def gradient(
        self, theta: Vector, batch: Batch, key: Key, mask: torch.Tensor | None = None
    ) -> tuple[float, Vector]:
        """Return the loss of a batch and its gradient; the key seeds dropout."""
        self._load_and_reset(theta)
        self.grad.zero_()
        x, y = batch
        can_split = self.is_mean_over(y) and not self._has_batch_norms
        passes = -(-len(x) // self._pass_size(y[0].numel())) if can_split else 1
        with self._seeded(key):
            for inputs, targets in zip(x.tensor_split(passes), y.tensor_split(passes), strict=True):
                self._loss_sum += self._backward(inputs, targets, mask, len(inputs) / len(x))
        return float(self._loss_sum), self.grad.clone()

    def train(
        self,
        theta: Vector,
        batches: Iterable[Batch],
        alpha: float,
        key: Key,
        mask: torch.Tensor | None = None,
    ) -> tuple[float, Vector]:
        """Take one local step per batch; return the mean loss and the resulting model."""
        self._load_and_reset(theta)
        self._local_step.start(theta, alpha)
        if self._graphs is None:
            take_step, randomness = self._step, self._seeded(key)
        else:
            take_step, randomness = self._graphs.run, self._graphs.seeded(key)
        steps = 0
        with randomness:
            for x, y in batches:
                take_step(x, y, mask)
                steps += 1
        return float(self._loss_sum) / steps, self.theta.clone()

    def outputs(self, x: torch.Tensor, module: nn.Module | None = None) -> torch.Tensor:
        """Return the outputs of the module, or of a given copy, in the chosen precision."""
        with self.autocast():
            out: torch.Tensor = (module or self.module)(x)
        if not isinstance(out, torch.Tensor):
            raise TypeError(f"the module must return one tensor, not a {type(out).__name__}")
        return out.to(self.theta.dtype)

    def autocast(self) -> torch.autocast:
        """Return a context in which layers compute in the chosen precision."""
        enabled = self.precision == "bf16"
        return torch.autocast(
            self.theta.device.type, torch.bfloat16, enabled=enabled, cache_enabled=False
        )

    def is_mean_over(self, y: torch.Tensor) -> bool:
        """Whether the loss over these targets is a mean over samples."""
        ignored = self.class_layout.ignore_index
        return self._is_mean_over_samples and (ignored is None or not bool((y == ignored).any()))

    def load(self, theta: Vector) -> None:
        """Set the parameters."""
        with torch.no_grad():
            self.theta.copy_(theta)

    def last_accuracy(self) -> float | None:
        """Return the accuracy on the latest minibatch; None if its targets are not classes."""
        if not self._targets_are_classes:
            return None
        if self._last_outputs is not None:
            self._accuracy.copy_(self.class_layout.accuracy(*self._last_outputs))
            self._last_outputs = None
        return float(self._accuracy)

    def _pass_size(self, targets: int) -> int:
        """Return the samples per pass, such that saved tensors fit into the cache of a CPU."""
        size = max(1, MAX_PASS_TARGETS // targets)
        if self.theta.is_cuda or not self._saved_bytes:
            return size
        return min(size, max(MIN_PASS_SAMPLES, CACHE_BYTES // self._saved_bytes))

    def _load_and_reset(self, theta: Vector) -> None:
        self.load(theta)
        self._loss_sum.zero_()

    def _step(self, x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor | None) -> None:
        self.grad.zero_()
        self._loss_sum += self._backward(x, y, mask)
        self._local_step.take()

    def _backward(
        self, x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor | None, weight: float = 1.0
    ) -> torch.Tensor:
        loss = self._loss_function(channels_last(x), y, mask) * weight
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _compute_loss(
        self, x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        outputs = self.outputs(x)
        if mask is not None:  # HeteroFL: unseen classes have logit zero
            outputs = self.class_layout.mask_unseen(mask, outputs)
        self.record_outputs(outputs.detach(), y)
        return self.loss(outputs, y)

    def record_outputs(self, outputs: torch.Tensor, y: torch.Tensor) -> None:
        """Keep the outputs for the accuracy, or compute it now on a GPU: graphs reuse memory."""
        self._targets_are_classes = self.class_layout.are_classes_of(y, outputs)
        if not self._targets_are_classes:
            return
        if outputs.is_cuda:
            self._accuracy.copy_(self.class_layout.accuracy(outputs, y))
        else:
            self._last_outputs = outputs, y

    @contextmanager
    def _seeded(self, key: Key) -> Iterator[None]:
        """Seed dropout from the key, and restore torch's generators at the end."""
        if not self.uses_rng:
            yield
            return
        # on a busy machine the threads of each small operation wait for one another
        one_thread = self.theta.is_cpu and self.theta.numel() < MIN_THREADED_PARAMETERS
        seed = key.torch().initial_seed()
        with (
            RNG_LOCK.seeded(seed, self.theta.device),
            torch_threads(1 if one_thread else None),
        ):
            yield


def _generator_state(device: torch.device) -> torch.Tensor:
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.default_generator.get_state()


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """Return images in channels-last memory format, which makes convolutions faster."""
    if x.ndim != 4 or x.stride(1) == 1:
        return x
    # `contiguous` would not change images of one channel
    return torch.empty_like(x, memory_format=torch.channels_last).copy_(x)


def _check_no_running_statistics(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if getattr(part, "track_running_stats", False):
            raise ValueError(
                f"{name or 'the module'} keeps running statistics, which differ between devices "
                "and are never sent; build it with track_running_stats=False"
            )
