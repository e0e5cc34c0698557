"""Gradients of many devices from one pass over the samples of all of them."""

from collections.abc import Callable, Sequence
from inspect import getattr_static
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from aquila.core.vector import Vector
from aquila.training.flat_module import FlatModule
from aquila.training.inputs import TensorBatch, channels_last


class HasData(Protocol):
    """An object with samples."""

    @property
    def tensors(self) -> TensorBatch:
        """Inputs and targets."""


class DeviceGradient(NamedTuple):
    """Loss and gradient of a device, and where its outputs are among those of all devices."""

    loss: float
    gradient: Vector
    outputs_of_all: torch.Tensor
    position: int

    @property
    def outputs(self) -> torch.Tensor:
        """The outputs that the loss comes from."""
        return self.outputs_of_all[self.position]


class NotJointError(Exception):
    """One pass cannot give the gradients of several devices of this module."""


class _LayerPass(NamedTuple):
    """What a linear layer saw in a pass."""

    inputs: torch.Tensor
    outputs: torch.Tensor


class JointPass:
    """Calls a module once on the samples of several devices, and separates their gradients.

    Every trained parameter must belong to a linear layer. The pass computes the gradients of the
    layers' outputs, and one product per layer and device gives the gradients of the parameters.
    The module must not read numbers of its tensors, because a branch would then depend on the
    samples of other devices. Whether it treats samples separately is for the caller to check.
    """

    def __init__(self, model: FlatModule) -> None:
        self._model = model.copy()
        self._layers = _linear_layers(self._model.module)
        self._seen: dict[nn.Module, list[_LayerPass]] = {}
        self._model.module.requires_grad_(False)
        for layer in self._layers:
            layer.register_forward_hook(self._record)

    def check(self, x: torch.Tensor) -> None:
        """Raise NotJointError if the module reads numbers of its tensors."""
        x = channels_last(x)
        with torch.no_grad(), _NumbersUnread():
            self._model.module(x)

    def __call__(self, devices: Sequence[HasData], theta: Vector) -> list[DeviceGradient]:
        """Return the gradients of devices with samples of one shape."""
        xs, ys = zip(*(device.tensors for device in devices), strict=True)
        model, count = self._model, len(devices)
        model.load(theta)
        self._seen = {layer: [] for layer in self._layers}
        outputs = model.outputs(channels_last(torch.cat(xs)))
        by_device = outputs.unflatten(0, (count, -1))
        read, loss = model.objective.read, model.objective.loss
        pairs = zip(by_device.unbind(), ys, strict=True)
        losses = torch.stack([loss(read(part, y), y) for part, y in pairs])
        gradients = self._separate(losses.sum(), count)
        outputs_of_all = by_device.detach()
        return [
            DeviceGradient(value, gradient, outputs_of_all, position)
            for position, (value, gradient) in enumerate(
                zip(losses.tolist(), gradients, strict=True)
            )
        ]

    def _separate(self, total: torch.Tensor, count: int) -> list[Vector]:
        """Return the gradient of each device, given the sum of their losses."""
        seen = [self._once(layer) for layer in self._layers]
        of_outputs = torch.autograd.grad(total, [layer.outputs for layer in seen])
        rows = []
        for layer, (inputs, _), gradient in zip(self._layers, seen, of_outputs, strict=True):
            of_devices = gradient.reshape(count, -1, gradient.shape[-1])
            samples = inputs.reshape(count, -1, inputs.shape[-1])
            rows.append(of_devices.transpose(1, 2).bmm(samples).flatten(1))
            if layer.bias is not None:
                rows.append(of_devices.sum(1))
        return [torch.cat(parts) for parts in zip(*(row.unbind() for row in rows), strict=True)]

    def _once(self, layer: nn.Module) -> _LayerPass:
        if len(self._seen[layer]) != 1:
            raise NotJointError("the module does not call each layer once")
        return self._seen[layer][0]

    def _record(self, layer: nn.Module, inputs: Any, outputs: torch.Tensor) -> None:
        if not torch.is_grad_enabled():
            return
        if not outputs.requires_grad:
            outputs.requires_grad_()
        self._seen[layer].append(_LayerPass(inputs[0].detach(), outputs))


def _linear_layers(module: nn.Module) -> list[nn.Linear]:
    """Return the linear layers, in the order of the parameters; they must hold all of these."""
    layers = [layer for layer in module.modules() if type(layer) is nn.Linear]
    of_layers = [p for layer in layers for p in layer.parameters()]
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if [id(p) for p in of_layers] != [id(p) for p in trained]:
        raise NotJointError("not every trained parameter belongs to a linear layer")
    return layers


class _NumbersUnread(TorchFunctionMode):
    """Raises NotJointError if a function turns a tensor into something that depends on numbers."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, torch.Tensor) and func not in _SHAPE_FUNCTIONS:
            raise NotJointError(f"the module calls {func}, whose result may depend on numbers")
        return result


_SHAPE_PROPERTIES = "shape", "ndim", "dtype", "device", "requires_grad", "is_cuda"
_SHAPE_METHODS = "size", "stride", "dim", "numel", "__len__", "is_floating_point"
_SHAPE_FUNCTIONS = {
    torch.is_floating_point,
    *(getattr_static(torch.Tensor, name).__get__ for name in _SHAPE_PROPERTIES),
    *(getattr(torch.Tensor, name) for name in _SHAPE_METHODS),
}
"""Functions whose results do not depend on the numbers in a tensor."""
