"""How good a model is: loss, accuracy, accuracy on each device's own classes, perplexity."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from aquila.core.vector import Vector
from aquila.sim.flat import CHUNK, Batch, FlatModule, is_classification
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
        loss, right, count, guesses = 0.0, 0.0, 0, []
        for x, y in self._passes():
            outputs = self.model.outputs(x, tested)
            loss += float(self.model.loss(outputs, y)) * y.numel()
            count += y.numel()
            if is_classification(outputs, y):
                right += float((outputs.argmax(-1) == y).sum())
                guesses.append([self._guess(outputs, classes) for classes in self.seen])
        metrics = {"test_loss": loss / count}
        if not is_classification(outputs, y):
            return metrics
        metrics["test_accuracy"] = right / count
        metrics["last_minibatch_train_accuracy"] = self.latest.accuracy()
        if y.ndim > 1:
            metrics["perplexity"] = math.exp(min(loss / count, 700))
        if self.seen:
            metrics["local_accuracy"] = self._local_accuracy(guesses)
        return metrics

    def _passes(self) -> Iterator[Batch]:
        x, y = self.test
        size = max(1, CHUNK // y[0].numel())
        return zip(torch.split(x, size), torch.split(y, size), strict=True)

    @staticmethod
    def _guess(outputs: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return outputs.masked_fill(~classes, 0).argmax(-1)

    def _local_accuracy(self, guesses: list[list[torch.Tensor]]) -> float:
        targets = self.test[1]
        accuracies = []
        for classes, parts in zip(self.seen, zip(*guesses, strict=True), strict=True):
            own = classes[targets]
            accuracies.append(float((torch.cat(parts) == targets)[own].double().mean()))
        return sum(accuracies) / len(accuracies)
