"""How good a model is: loss, accuracy, accuracy on each device's own classes, perplexity."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from aquila.core.vector import Vector
from aquila.sim.flat import CHUNK, Batch, FlatModule
from aquila.sim.replicas import Latest
from aquila.tasks.models import with_statistics

STATISTICS_BATCH = 500
"""Most training samples in one batch of the statistics of batch norms."""


@dataclass(frozen=True)
class Judge:
    """Judges a model by test samples; its batch norms get statistics of training inputs first.

    `seen` says which classes each device has seen. HeteroFL's local accuracy is the average over
    the devices of the accuracy on test samples of their classes, all other logits being zero.
    """

    model: FlatModule
    latest: Latest
    test: Batch
    train_inputs: torch.Tensor
    seen: Sequence[torch.Tensor] = ()

    @torch.no_grad()
    def __call__(self, theta: Vector) -> dict[str, float]:
        """Return the metrics of a model."""
        self.model.load(theta)
        count = -(-len(self.train_inputs) // STATISTICS_BATCH)
        batches = torch.tensor_split(self.train_inputs, count)  # none of them much smaller
        with self.model.arithmetic():
            tested = with_statistics(self.model.module, batches)
        loss, count, guesses = 0.0, 0, []
        for outputs, y in self._answers(tested):
            loss += float(self.model.loss(outputs, y)) * y.numel()
            count += y.numel()
            if self.model.labels.are_in(y, outputs):
                guesses.append([self._guess(outputs, classes) for classes in (None, *self.seen)])
        metrics = {"test_loss": loss / count}
        if not guesses:
            return metrics
        everywhere, *local = (torch.cat(parts) for parts in zip(*guesses, strict=True))
        right = self._right(everywhere)
        metrics["test_accuracy"] = float(right.sum()) / max(1, right.numel())
        metrics["last_minibatch_train_accuracy"] = self.latest.accuracy()
        if y.ndim > 1:
            metrics["perplexity"] = math.exp(min(loss / count, 700))
        if self.seen:
            metrics["local_accuracy"] = self._local_accuracy(local)
        return metrics

    def _answers(self, tested: nn.Module) -> Iterable[Batch]:
        """Yield outputs and targets, all at once if the loss cannot be added up."""
        x, y = self.test
        size = max(1, CHUNK // y[0].numel())
        outputs = (self.model.outputs(part, tested) for part in torch.split(x, size))
        if self.model.adds_up(y):
            return zip(outputs, torch.split(y, size), strict=True)
        return [(torch.cat(list(outputs)), y)]

    def _guess(self, outputs: torch.Tensor, classes: torch.Tensor | None) -> torch.Tensor:
        labels = self.model.labels
        scores = outputs if classes is None else labels.only(classes, outputs)
        return scores.argmax(labels.axis)

    def _right(self, guesses: torch.Tensor, classes: torch.Tensor | None = None) -> torch.Tensor:
        """Return whether each guess is right, for the targets that count, or those of classes."""
        targets, ignored = self.test[1], self.model.labels.ignored
        if ignored is not None:
            counted = targets != ignored
            targets, guesses = targets[counted], guesses[counted]
        right = guesses == targets
        return right if classes is None else right[classes[targets]]

    def _local_accuracy(self, guesses: Sequence[torch.Tensor]) -> float:
        right = map(self._right, guesses, self.seen)
        return sum(float(own.double().mean()) for own in right) / len(guesses)
