"""A module as one flat vector: gradients and local steps without per-parameter copies."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from aquila.core.random import Key
from aquila.core.tensors import split_tensors
from aquila.core.vector import Vector
from aquila.tasks.models import trained_batch_norms
from aquila.training.cuda_graph import StepGraphs
from aquila.training.inputs import (
    Batch,
    Inputs,
    count_samples,
    in_fast_format,
    run_module,
    split_batch,
)
from aquila.training.local_optimizer import LocalStep
from aquila.training.local_training import LocalTraining
from aquila.training.losses import Loss
from aquila.training.objective import Objective, OutputForm, RecordedOutputs, scores_of
from aquila.training.rng_lock import RNG_LOCK, generator_state
from aquila.training.step_gradients import StepGradients
from aquila.training.torch_threads import torch_threads
from aquila.training.training_copy import ChangingBuffers, training_copy

Precision = Literal["float32", "tf32", "bf16"]
"""Arithmetic of the layers: float32, TensorFloat-32 products on a GPU, or bfloat16."""

MAX_PASS_TARGETS = 8192
"""Targets per pass through the module; larger batches accumulate gradients."""

CACHE_BYTES = 2**23
"""Bytes that one pass on a CPU may save for the backward pass, so that they stay in cache."""

MIN_PASS_SAMPLES = 16
"""Smallest number of samples per pass, however many bytes they save."""

MIN_THREADED_PARAMETERS = 2**24
"""Smallest model for which torch may use several threads per operation on a CPU."""


class FlatModule:
    """A copy of a module whose parameters and gradients are views of two flat vectors.

    Only parameters that require gradients are in the vectors. `probe` finds out whether training
    draws random numbers (`uses_rng`) or changes buffers, and how many bytes per sample the forward
    pass saves for the backward pass.
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
        self.module = training_copy(module, device)
        self.objective = Objective(loss)
        self.changing_buffers = ChangingBuffers(self.module)
        self.precision = precision
        self.compile_model = compile_model
        self.training = training
        self.uses_rng = self.captures_steps = True
        self._saved_bytes = 0
        self._flatten_parameters()
        self._accuracy = torch.zeros((), device=device)
        self._last_outputs: Callable[[], RecordedOutputs] | None = None
        self._targets_are_classes = False
        # batch norms compute statistics of the whole batch, so the batch must not be split
        self._has_batch_norms = bool(trained_batch_norms(self.module))
        self._loss_sum = self.theta.new_zeros(())
        trained = [p for p in self.module.parameters() if p.requires_grad]
        self._local_step = LocalStep(self.theta, self.grad, trained, training)
        own = (self.theta, self.grad, self._accuracy, self._loss_sum)
        mutated = (*own, *self._local_step.state, *self.module.buffers())
        uses_graphs = self.theta.is_cuda and self._local_step.fits_graph
        self._graphs = StepGraphs(self._step, mutated) if uses_graphs else None
        self._step_gradients = StepGradients(self.grad, trained, copies=uses_graphs)
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
        self._names, self.shapes = list(trained), tuple(p.shape for p in trained.values())
        data, gradients = self.parameter_views(self.theta), self.parameter_views(self.grad)
        for name, parameter in trained.items():
            parameter.data, parameter.grad = data[name], gradients[name]

    def copy(self) -> "FlatModule":
        """Return a copy that shares no memory with this one."""
        loss = self.objective.loss
        copied = FlatModule(
            self.module, loss, self.theta.device, self.precision, self.compile_model,
            self.training,
        )  # fmt: skip
        copied.uses_rng, copied._saved_bytes = self.uses_rng, self._saved_bytes
        copied.objective, copied.captures_steps = self.objective, self.captures_steps
        copied.changing_buffers = self.changing_buffers.copy_for(copied.module)
        return copied

    def parameter_views(self, vector: Vector) -> dict[str, torch.Tensor]:
        """Return views of a flat vector as named parameters."""
        parts = zip(self._names, split_tensors(vector, self.shapes), self.shapes, strict=True)
        return {name: part.view(shape) for name, part, shape in parts}

    def probe(self, x: Inputs) -> OutputForm:
        """Learn from a pass over inputs what training does; return the form of the outputs."""
        parameters, saved = self.theta.untyped_storage().data_ptr(), {}

        def record_saved(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.untyped_storage().data_ptr() != parameters:
                saved[tensor.data_ptr()] = tensor.nbytes
            return tensor.detach()  # an output itself would keep its graph alive

        with (
            self._seeded(Key((0,))),
            torch.autograd.graph.saved_tensors_hooks(record_saved, lambda tensor: tensor),
        ):
            before = generator_state(self.theta.device)
            outputs = self.outputs(in_fast_format(x), self.module)  # not compiled: unusual shape
            self.uses_rng = not before.equal(generator_state(self.theta.device))
            form = OutputForm.of(outputs, x)
            del outputs
        self.changing_buffers.forget_unchanged()
        self._saved_bytes = sum(saved.values()) // count_samples(x)
        return form

    @torch.no_grad()
    def output_form(self, x: Inputs) -> OutputForm:
        """Return the form of the outputs for inputs of another shape than the probe's.

        A turn that is in progress goes on as if nothing had been computed.
        """
        with self._seeded(Key((0,))), self.changing_buffers.preserved():
            return OutputForm.of(self.outputs(in_fast_format(x), self.module), x)

    def gradient(
        self, theta: Vector, batch: Batch, key: Key, mask: torch.Tensor | None = None
    ) -> tuple[float, Vector]:
        """Return the loss of a batch and its gradient; the key seeds dropout."""
        self._load_and_reset(theta)
        self.grad.zero_()
        x, y = batch
        count, passes = count_samples(x), 1
        if y is not None and self.objective.is_mean_over(y) and not self._has_batch_norms:
            passes = -(-count // self._pass_size(y[0].numel()))
        with self._seeded(key):
            for inputs, targets in split_batch(batch, passes):
                weight = count_samples(inputs) / count
                self._loss_sum += self._backward(inputs, targets, mask, weight)
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
        take_step: Any  # graphs take tensors only
        if self._graphs is None or not self.captures_steps:
            take_step, randomness = self._step, self._seeded(key)
        else:
            take_step, randomness = self._graphs.run, self._graphs.seeded(key)
        steps = 0
        with randomness:
            for x, y in batches:
                take_step(x, y, mask)
                steps += 1
        return float(self._loss_sum) / steps, self.theta.clone()

    @torch.no_grad()
    def mean_loss(
        self, theta: Vector, batches: Iterable[Batch], key: Key, mask: torch.Tensor | None = None
    ) -> float:
        """Return the mean loss over the samples of the batches; the key seeds dropout."""
        self.load(theta)
        parts: list[tuple[float, int]] = []
        with self._seeded(key):
            for x, y in batches:
                outputs = self._masked_outputs(in_fast_format(x), y, mask)
                parts.append((float(self.objective.value(outputs, y)), count_samples(x)))
        return sum(loss * count for loss, count in parts) / sum(count for _, count in parts)

    def outputs(self, x: Inputs, module: nn.Module | None = None) -> Any:
        """Return the outputs of the module, or of a given copy, in the chosen precision."""
        with self.autocast():
            outputs = run_module(module or self.module, x)
        return outputs.to(self.theta.dtype) if isinstance(outputs, torch.Tensor) else outputs

    def autocast(self) -> torch.autocast:
        """Return a context in which layers compute in the chosen precision."""
        enabled = self.precision == "bf16"
        return torch.autocast(
            self.theta.device.type, torch.bfloat16, enabled=enabled, cache_enabled=False
        )

    def load(self, theta: Vector) -> None:
        """Set the parameters, and reset the buffers that training changes."""
        with torch.no_grad():
            self.theta.copy_(theta)
        self.changing_buffers.reset()

    def last_accuracy(self) -> float | None:
        """Return the accuracy on the latest minibatch; None if its targets are not classes."""
        if self._last_outputs is not None:
            self._store_accuracy(*self._last_outputs())
            self._last_outputs = None
        return float(self._accuracy) if self._targets_are_classes else None

    def _pass_size(self, targets: int) -> int:
        """Return the samples per pass, such that saved tensors fit into the cache of a CPU."""
        size = max(1, MAX_PASS_TARGETS // targets)
        if self.theta.is_cuda or not self._saved_bytes:
            return size
        return min(size, max(MIN_PASS_SAMPLES, CACHE_BYTES // self._saved_bytes))

    def _load_and_reset(self, theta: Vector) -> None:
        self.load(theta)
        self._loss_sum.zero_()

    def _step(self, x: Inputs, y: torch.Tensor | None, mask: torch.Tensor | None) -> None:
        self._loss_sum += self._step_gradients.of(partial(self._backward, x, y, mask))
        self._local_step.take()

    def _backward(
        self, x: Inputs, y: torch.Tensor | None, mask: torch.Tensor | None, weight: float = 1.0
    ) -> torch.Tensor:
        loss = self._loss_function(in_fast_format(x), y, mask) * weight
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _compute_loss(
        self, x: Inputs, y: torch.Tensor | None, mask: torch.Tensor | None
    ) -> torch.Tensor:
        outputs = self._masked_outputs(x, y, mask)
        self.record_outputs(outputs, x, y)
        return self.objective.value(outputs, y).to(self.theta.dtype)

    def _masked_outputs(self, x: Inputs, y: torch.Tensor | None, mask: torch.Tensor | None) -> Any:
        outputs = self.objective.read(self.outputs(x), y)
        if mask is not None:  # HeteroFL: unseen classes have logit zero
            outputs = self.objective.class_layout.mask_unseen(mask, outputs)
        return outputs

    def record_outputs(self, outputs: Any, x: Inputs, y: torch.Tensor | None) -> None:
        """Keep the outputs for the accuracy, or compute it now on a GPU: graphs reuse memory."""
        scores = scores_of(outputs)
        if scores is not None and scores.requires_grad:
            scores = scores.detach()
        if self.theta.is_cuda:
            self._store_accuracy(scores, x, y)
        else:
            self.record_outputs_later(lambda: (scores, x, y))

    def record_outputs_later(self, read: Callable[[], RecordedOutputs]) -> None:
        """Keep a function that returns scores, inputs and targets for the accuracy, on a CPU."""
        self._last_outputs = read

    def _store_accuracy(
        self, scores: torch.Tensor | None, x: Inputs, y: torch.Tensor | None
    ) -> None:
        predicted = self.objective.predictions(scores, x, y)
        self._targets_are_classes = predicted is not None
        if predicted is not None:
            self._accuracy.copy_(self.objective.class_layout.accuracy(*predicted))

    @contextmanager
    def _seeded(self, key: Key) -> Iterator[None]:
        """Seed dropout from the key, and restore torch's generators at the end.

        Small models compute on one torch thread: on a busy machine, the threads of each short
        operation would mostly wait for one another.
        """
        one_thread = self.theta.is_cpu and self.theta.numel() < MIN_THREADED_PARAMETERS
        with torch_threads(1 if one_thread else None):
            if not self.uses_rng:
                yield
                return
            with RNG_LOCK.seeded(key.torch().initial_seed(), self.theta.device):
                yield
