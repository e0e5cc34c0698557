"""The objective of training: from the outputs of a module to the loss and the accuracy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from aquila.training.inputs import Inputs, TensorBatch
from aquila.training.losses import (
    CLASS_TARGET_LOSSES,
    DEFAULT_IGNORE_INDEX,
    ELEMENTWISE_LOSSES,
    ClassLayout,
    Loss,
    is_mean_over_samples,
    underlying_loss,
)

LABELS = "labels"
"""The input that holds the classes if the module computes the loss itself."""

RecordedOutputs = tuple[torch.Tensor | None, Inputs, torch.Tensor | None]
"""Scores, inputs and targets of a minibatch."""


@dataclass(frozen=True)
class OutputForm:
    """What a module returned for some inputs.

    Attributes:
        kind: Name of the type of the outputs.
        shape: Shape of the scores, None if there are none.
        is_tensor: Whether the outputs are one tensor.
        has_loss: Whether the outputs hold a loss.
        label_shift: Positions by which `labels` are ahead of the scores that predict them: 0 for
            classifiers, 1 for causal language models, None if the loss is not the cross entropy.
    """

    kind: str
    shape: torch.Size | None
    is_tensor: bool
    has_loss: bool
    label_shift: int | None

    @classmethod
    def of(cls, outputs: Any, x: Inputs) -> "OutputForm":
        """Describe the outputs of a module for inputs."""
        scores, loss = scores_of(outputs), module_loss(outputs)
        labels = x.get(LABELS) if isinstance(x, dict) else None
        shift = None
        if scores is not None and loss is not None and labels is not None:
            shift = _find_label_shift(scores.detach(), loss.detach(), labels)
        shape = None if scores is None else scores.shape
        is_tensor = isinstance(outputs, torch.Tensor)
        return cls(type(outputs).__name__, shape, is_tensor, loss is not None, shift)


class Objective:
    """A loss function, and how it reads classes.

    A loss of torch reads the scores of the outputs. A loss function of the user gets the outputs
    as they are. Without targets, the loss is the one that the module computed itself.

    The caller sets `class_layout` once the targets are known, with the ignored target, or calls
    `read_labels` if there are no targets.
    """

    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        self.class_layout = ClassLayout.of(loss)
        self.has_targets = True
        self.label_shift: int | None = None
        self.reads_scores = underlying_loss(loss) in (*CLASS_TARGET_LOSSES, *ELEMENTWISE_LOSSES)
        self._is_mean_over_samples = is_mean_over_samples(loss)

    def is_mean_over(self, y: torch.Tensor | None) -> bool:
        """Whether the loss over these targets is a mean over samples."""
        if y is None or not self._is_mean_over_samples:
            return False
        ignored = self.class_layout.ignore_index
        return ignored is None or not bool((y == ignored).any())

    def read(self, outputs: Any, y: torch.Tensor | None) -> Any:
        """Return what the loss reads of the outputs. Scores of 16 bits become float32."""
        if y is None or not self.reads_scores:
            return outputs
        scores = scores_of(outputs)
        has_16_bits = scores is not None and scores.dtype in (torch.bfloat16, torch.float16)
        return scores.float() if scores is not None and has_16_bits else scores

    def value(self, read: Any, y: torch.Tensor | None) -> torch.Tensor:
        """Return the loss, given the result of `read`."""
        if y is not None:
            return self.loss(read, y)
        loss = module_loss(read)
        if loss is None:
            raise ValueError("the outputs of the module have no loss, and there are no targets")
        return loss

    def predictions(self, outputs: Any, x: Inputs, y: torch.Tensor | None) -> TensorBatch | None:
        """Return scores and the classes they predict; None if the targets are not classes."""
        scores = scores_of(outputs)
        if scores is None:
            return None
        if y is not None:
            return (scores, y) if self.class_layout.are_classes_of(y, scores) else None
        if self.label_shift is None or not isinstance(x, dict):
            return None
        return _shifted(scores, x[LABELS], self.label_shift)

    def read_labels(self, shift: int | None) -> None:
        """Use the loss of the module, and read classes from its labels, as Hugging Face does."""
        self.has_targets, self.label_shift = False, shift
        self.class_layout = ClassLayout(-1, DEFAULT_IGNORE_INDEX)


def scores_of(outputs: Any) -> torch.Tensor | None:
    """Return the tensor that standard losses read; None if the outputs have none.

    This is the tensor itself, `logits` of a dict or an object, or the first element of a tuple.
    """
    found = outputs
    if not isinstance(outputs, torch.Tensor):
        found = _field(outputs, "logits")
    if found is None and isinstance(outputs, tuple | list) and outputs:
        found = outputs[0]
    return found if isinstance(found, torch.Tensor) else None


def module_loss(outputs: Any) -> torch.Tensor | None:
    """Return the loss that a module computed itself; None if the outputs have none."""
    found = _field(outputs, "loss")
    return found if isinstance(found, torch.Tensor) and found.ndim == 0 else None


def _field(outputs: Any, name: str) -> Any:
    return outputs.get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)


def _shifted(scores: torch.Tensor, labels: torch.Tensor, shift: int) -> TensorBatch:
    return (scores[:, :-shift], labels[:, shift:]) if shift else (scores, labels)


def _find_label_shift(scores: torch.Tensor, loss: torch.Tensor, labels: torch.Tensor) -> int | None:
    """Return the shift with which the cross entropy of scores and labels is the module's loss."""
    if labels.is_floating_point() or scores.shape[:-1] != labels.shape:
        return None
    matching = []
    for shift in range(min(2, labels.ndim)):
        part, classes = _shifted(scores, labels, shift)
        entropy = functional.cross_entropy(part.flatten(0, -2).float(), classes.flatten().long())
        if torch.isclose(entropy, loss.float(), rtol=1e-5, atol=1e-6):
            matching.append(shift)
    return matching[0] if len(matching) == 1 else None
