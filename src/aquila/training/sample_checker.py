"""Check the samples of a problem against its module and loss, and move them to the device."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from aquila.training.batch_conversion import describe
from aquila.training.flat_module import FlatModule
from aquila.training.inputs import Batch, Inputs, channels_last, map_inputs, parts_of, take_samples
from aquila.training.objective import LABELS, OutputForm
from aquila.training.target_checks import check_classes, checked_targets, dtype_name


class SampleChecker:
    """Checks batches, and returns them on the device of the models, in types that the loss takes.

    The first batch determines the form, the types and the torch device of all others.
    """

    def __init__(self, models: Sequence[FlatModule]) -> None:
        self._models = models
        self._first: tuple[str, Batch] | None = None
        self._forms: dict[tuple[torch.Size, ...], OutputForm] = {}

    def __call__(self, name: str, batch: Batch) -> Batch:
        """Return a batch, checked and moved; ValueError names what is wrong with it."""
        model, (x, y) = self._models[0], batch
        _check_lengths(name, x, y)
        form = self._form(name, batch)
        if y is not None:
            _check_outputs(form, model)
            if form.shape is not None:
                y = checked_targets(name, y, model.objective, model.theta.dtype, form.shape)
            y = y.to(model.theta.device)  # after the checks, which would wait for a GPU
        elif form.label_shift is not None and form.shape is not None and isinstance(x, dict):
            check_classes(name, x[LABELS], model.objective.class_layout, form.shape[-1])
        return map_inputs(lambda part: channels_last(part.to(model.theta.device)), x), y

    def _form(self, name: str, batch: Batch) -> OutputForm:
        """Return the form of the outputs. The first batch probes all models."""
        x, y = batch
        shape = tuple(part.shape[1:] for part in parts_of(x).values())
        if self._first is None:
            self._first = name, take_samples(batch, slice(1))
            for model in self._models:
                form = _run_probe(name, x, model, model.probe)
                _adopt_form(model, form, x, y)
                self._forms.setdefault(shape, form)
        _check_alike(name, batch, *self._first)
        if shape not in self._forms:
            if y is None:  # the module computes the loss, so the shape of its outputs is not needed
                return next(iter(self._forms.values()))
            self._forms[shape] = _run_probe(name, x, self._models[0], self._models[0].output_form)
        return self._forms[shape]


def _adopt_form(model: FlatModule, form: OutputForm, x: Inputs, y: torch.Tensor | None) -> None:
    """Tell a model what its outputs look like; ValueError if there is no loss."""
    model.captures_steps = form.is_tensor and isinstance(x, torch.Tensor)
    if y is not None:
        return
    if not form.has_loss:
        raise ValueError(
            "the shards are dicts without targets, and the outputs of the module have no loss; "
            "add labels to the dicts, or pass pairs of inputs and targets"
        )
    if model.objective.loss is not functional.cross_entropy:
        raise ValueError(
            "the shards are dicts without targets, so the loss is that of the module's outputs; "
            "leave out loss, or pass pairs of inputs and targets"
        )
    model.objective.read_labels(form.label_shift)


def _check_outputs(form: OutputForm, model: FlatModule) -> None:
    if form.shape is None and model.objective.reads_scores:
        raise ValueError(
            "the module must return a tensor, a tuple that begins with a tensor, or a dict with "
            f"logits, not a {form.kind}; a loss function of your own gets any outputs"
        )


def _check_lengths(name: str, x: Inputs, y: torch.Tensor | None) -> None:
    parts = parts_of(x) if y is None else {**parts_of(x), "targets": y}
    if any(part.ndim == 0 for part in parts.values()):
        shapes = [f"{what} of shape {tuple(part.shape)}" for what, part in parts.items()]
        raise ValueError(
            f"{name} has {' and '.join(shapes)}; the first axis of each must be the samples"
        )
    lengths = {what: len(part) for what, part in parts.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        found = " and ".join(f"{length} {what}" for what, length in lengths.items())
        needed = "equally many" if any(lengths.values()) else "at least one sample"
        owner = "it" if name == "test" else "each device"
        raise ValueError(f"{name} has {found}; {owner} needs {needed}")


def _check_alike(name: str, batch: Batch, first_name: str, first: Batch) -> None:
    """Raise ValueError if a batch has another form, type or torch device than the first one."""
    (x, y), (first_x, first_y) = batch, first
    if (y is None) != (first_y is None):
        has, had = ("no targets" if part is None else "targets" for part in (y, first_y))
        raise ValueError(f"{name} has {has}, but {first_name} has {had}")
    parts, firsts = parts_of(x), parts_of(first_x)
    if list(parts) != list(firsts):
        raise ValueError(
            f"{name} has {_form_of(x)} as inputs, but {first_name} has {_form_of(first_x)}"
        )
    for what, part in parts.items():
        if part.dtype != firsts[what].dtype:
            raise ValueError(
                f"{name} has {dtype_name(part.dtype)} {what}, but {first_name} has "
                f"{dtype_name(firsts[what].dtype)}; all inputs must have the same type"
            )
    device = next(iter(firsts.values())).device
    for what, part in (parts if y is None else {**parts, "targets": y}).items():
        if part.device != device:
            raise ValueError(
                f"{name} has {what} on {part.device}, but {first_name} has inputs on {device}; put "
                "all samples on one torch device"
            )


def _form_of(x: Inputs) -> str:
    return f"a dict of {', '.join(x)}" if isinstance(x, dict) else describe(x)


def _run_probe(
    name: str, x: Inputs, model: FlatModule, run_probe: Callable[[Inputs], OutputForm]
) -> OutputForm:
    """Return the form of the outputs for inputs; ValueError if the module fails on them."""
    few: Any = take_samples((x, None), slice(2))[0]
    try:
        return run_probe(map_inputs(lambda part: part.to(model.theta.device), few))
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        parts = [
            f"{dtype_name(part.dtype)} {what} of shape {tuple(part.shape)}"
            for what, part in parts_of(x).items()
        ]
        raise ValueError(
            f"{name} has {' and '.join(parts)}, which the module of "
            f"{dtype_name(model.theta.dtype)} does not take: {str(error).splitlines()[0]}"
        ) from error
