"""Evaluate a model: loss, accuracy, accuracy on each device's classes, perplexity."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from aquila.core.vector import Vector
from aquila.sim.flat_module import MAX_PASS_TARGETS, Batch, FlatModule
from aquila.sim.model_copies import LastTrained
from aquila.tasks.models import with_batch_norm_statistics

STATISTICS_BATCH = 500
"""Largest batch of training samples for the statistics of batch norms."""


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a model on test samples, after computing its batch norms on training inputs.

    `device_classes` marks the classes that each device has samples of. HeteroFL's local accuracy
    is the accuracy on test samples of these classes with all other logits set to zero, averaged
    over the devices.
    """

    model: FlatModule
    last_trained: LastTrained
    test: Batch
    train_inputs: torch.Tensor
    device_classes: Sequence[torch.Tensor] = ()

    @torch.no_grad()
    def __call__(self, theta: Vector) -> dict[str, float]:
        """Return the metrics of a model.

        `last_minibatch_train_accuracy` is absent if no device has trained since the last call.
        """
        self.model.load(theta)
        batch_count = -(-len(self.train_inputs) // STATISTICS_BATCH)
        batches = torch.tensor_split(self.train_inputs, batch_count)  # of nearly equal size
        with self.model.autocast():
            tested = with_batch_norm_statistics(self.model.module, batches)
        loss, count, predictions = 0.0, 0, []
        for outputs, y in self._batches(tested):
            loss += float(self.model.loss(outputs, y)) * y.numel()
            count += y.numel()
            if self.model.class_layout.are_classes_of(y, outputs):
                predictions.append(
                    [self._predict(outputs, classes) for classes in (None, *self.device_classes)]
                )
        metrics = {"test_loss": loss / count}
        if not predictions:
            return metrics
        unmasked, *masked = (torch.cat(parts) for parts in zip(*predictions, strict=True))
        correct = self._is_correct(unmasked)
        metrics["test_accuracy"] = float(correct.sum()) / max(1, correct.numel())
        last_accuracy = self.last_trained.take_accuracy()
        if last_accuracy is not None:
            metrics["last_minibatch_train_accuracy"] = last_accuracy
        if self.test[1].ndim > 1:
            metrics["perplexity"] = math.exp(min(loss / count, 700))
        if self.device_classes:
            metrics["local_accuracy"] = self._local_accuracy(masked)
        return metrics

    def _batches(self, tested: nn.Module) -> Iterable[Batch]:
        """Yield outputs and targets, in one batch if the loss is not a mean over samples."""
        x, y = self.test
        size = max(1, MAX_PASS_TARGETS // y[0].numel())
        outputs = (self.model.outputs(part, tested) for part in torch.split(x, size))
        if self.model.is_mean_over(y):
            return zip(outputs, torch.split(y, size), strict=True)
        return [(torch.cat(list(outputs)), y)]

    def _predict(self, outputs: torch.Tensor, classes: torch.Tensor | None) -> torch.Tensor:
        layout = self.model.class_layout
        scores = outputs if classes is None else layout.mask_unseen(classes, outputs)
        return scores.argmax(layout.class_axis)

    def _is_correct(
        self, predictions: torch.Tensor, classes: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return whether each prediction is correct.

        Ignored targets are left out, and with `classes` all targets of other classes.
        """
        targets, ignored = self.test[1], self.model.class_layout.ignore_index
        if ignored is not None:
            counted = targets != ignored
            targets, predictions = targets[counted], predictions[counted]
        correct = predictions == targets
        return correct if classes is None else correct[classes[targets]]

    def _local_accuracy(self, predictions: Sequence[torch.Tensor]) -> float:
        correct = map(self._is_correct, predictions, self.device_classes)
        return sum(float(own.double().mean()) for own in correct) / len(predictions)
