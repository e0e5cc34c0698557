"""Evaluate a model: loss, accuracy, accuracy on each device's classes, perplexity."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from aquila.core.vector import Vector
from aquila.training.flat_module import MAX_PASS_TARGETS, FlatModule
from aquila.training.inputs import Inputs, TensorBatch, count_samples
from aquila.training.losses import ClassLayout
from aquila.training.model_copies import LastTrained
from aquila.training.module_builder import ModuleBuilder
from aquila.training.shard_data import ShardData, TensorData, in_order

TEST_BATCH = 256
"""Samples per pass if they are not plain tensors and `batch_size` is not set."""

Evaluated = tuple[Inputs, torch.Tensor | None, Any]
"""Inputs, targets, and what the loss reads of the outputs."""


@dataclass
class _Accuracy:
    """Counts correct predictions; with `classes`, only on targets of these classes."""

    classes: torch.Tensor | None = None
    correct: int = 0
    targets: int = 0
    is_text: bool = False

    def add(self, layout: ClassLayout, scores: torch.Tensor, targets: torch.Tensor) -> None:
        if self.classes is not None:
            scores = layout.mask_unseen(self.classes, scores)
        self.is_text = targets.ndim == 2  # a class per pixel has one axis more
        predictions = scores.argmax(layout.class_axis)
        if layout.ignore_index is not None:
            counted = targets != layout.ignore_index
            targets, predictions = targets[counted], predictions[counted]
        correct = predictions == targets
        correct = correct if self.classes is None else correct[self.classes[targets]]
        self.correct += int(correct.sum())
        self.targets += correct.numel()


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a model on test samples, after computing its batch norms on training inputs.

    If batch norm statistics are local, the metrics are the mean over the modules of all devices.
    `device_classes` marks the classes that each device has samples of. HeteroFL's local accuracy
    is the accuracy on test samples of these classes with all other logits set to zero, averaged
    over the devices.
    """

    model: FlatModule
    last_trained: LastTrained
    test: ShardData
    builder: ModuleBuilder
    device_classes: Sequence[torch.Tensor] = ()
    batch_size: int | None = None

    @torch.no_grad()
    def __call__(self, theta: Vector) -> dict[str, float]:
        """Return the metrics of a model.

        `last_minibatch_train_accuracy` is absent if no device has trained since the last call.
        """
        devices, last = self.builder.evaluated_devices, self.last_trained.take_accuracy()
        modules = (self.builder.module_for(theta, device) for device in devices)
        measured = [self._measure(module, last) for module in modules]
        return {name: sum(m[name] for m in measured) / len(measured) for name in measured[0]}

    def _measure(self, tested: nn.Module, last_accuracy: float | None) -> dict[str, float]:
        objective = self.model.objective
        loss, weights, accuracies = 0.0, 0, [_Accuracy(c) for c in (None, *self.device_classes)]
        predicted = None
        for x, y, outputs in self._batches(tested):
            predicted = objective.predictions(outputs, x, y)
            weight = self._weight(x, y, predicted)
            if weight == 0:  # all targets are ignored, and the loss is NaN
                continue
            loss += float(objective.value(outputs, y)) * weight
            weights += weight
            if predicted is not None:
                for accuracy in accuracies:
                    accuracy.add(objective.class_layout, *predicted)
        metrics = {"test_loss": loss / max(1, weights)}
        if predicted is None:
            return metrics
        unmasked, *masked = accuracies
        metrics["test_accuracy"] = unmasked.correct / max(1, unmasked.targets)
        if last_accuracy is not None:
            metrics["last_minibatch_train_accuracy"] = last_accuracy
        if unmasked.is_text:
            metrics["perplexity"] = math.exp(min(metrics["test_loss"], 700))
        if masked:
            own = [a.correct / a.targets if a.targets else math.nan for a in masked]
            metrics["local_accuracy"] = sum(own) / len(own)
        return metrics

    def _batches(self, tested: nn.Module) -> Iterable[Evaluated]:
        """Yield inputs, targets and outputs, in one batch if the loss is not a mean over samples.

        The loss of samples that are not in memory is always averaged over batches.
        """
        objective = self.model.objective
        batches = (
            (x, y, objective.read(self.model.outputs(x, tested), y))
            for x, y in in_order(self.test, self._pass_size())
        )
        if not isinstance(self.test, TensorData) or self.test.batch[1] is None:
            return batches
        x, y = self.test.batch
        if objective.is_mean_over(y):
            return batches
        every = list(batches)
        if not all(isinstance(outputs, torch.Tensor) for _, _, outputs in every):
            return every
        return [(x, y, torch.cat([outputs for _, _, outputs in every]))]

    def _pass_size(self) -> int:
        x, y = self.test.batch if isinstance(self.test, TensorData) else (None, None)
        if isinstance(x, torch.Tensor) and y is not None:
            return max(1, MAX_PASS_TARGETS // y[0].numel())
        return self.batch_size or TEST_BATCH

    def _weight(self, x: Inputs, y: torch.Tensor | None, predicted: TensorBatch | None) -> int:
        """Return how many targets the loss of a batch is the mean of, as far as that is known."""
        targets = predicted[1] if y is None and predicted is not None else y
        if targets is None:
            return count_samples(x)
        ignored = self.model.objective.class_layout.ignore_index
        if ignored is None or targets.is_floating_point():
            return targets.numel()
        return int(targets.ne(ignored).sum())
