"""Gradients of many devices from one pass over the samples of all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import getattr_static
from typing import Any, NamedTuple, Protocol

import torch
from numpy.typing import NDArray
from torch import nn
from torch.overrides import TorchFunctionMode

from aquila.core.vector import Vector
from aquila.training.flat_module import FlatModule
from aquila.training.inputs import TensorBatch, channels_last
from aquila.training.joint_loss import is_mean_cross_entropy, mean_losses, sample_losses


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


@dataclass(frozen=True, eq=False)
class JointGradients(Sequence[DeviceGradient]):
    """The result of a pass. A device gets a copy of its row, so that it does not keep the others.

    Attributes:
        losses: Loss per device.
        rows: Gradient per device.
        outputs: Outputs per device.
    """

    losses: list[float]
    rows: NDArray[Any]
    outputs: torch.Tensor

    def __len__(self) -> int:
        return len(self.losses)

    def __getitem__(self, position: Any) -> Any:
        # a copy by torch or NumPy would hand the interpreter lock to the next pass, and wait for it
        gradient = torch.frombuffer(bytearray(self.rows[position].data), dtype=self.outputs.dtype)
        return DeviceGradient(self.losses[position], gradient, self.outputs, position)


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

    def __call__(self, devices: Sequence[HasData], theta: Vector) -> JointGradients:
        """Return the gradients of devices with samples of one shape."""
        xs, ys = zip(*(device.tensors for device in devices), strict=True)
        model, count = self._model, len(devices)
        model.load(theta)
        self._seen = {layer: [] for layer in self._layers}
        outputs = model.outputs(channels_last(torch.cat(xs))).unflatten(0, (count, -1))
        losses, total, factor = self._losses(outputs, ys)
        rows = self._separate(total, factor, count)
        return JointGradients(losses(), rows.numpy(), outputs.detach())

    def _losses(
        self, outputs: torch.Tensor, ys: Sequence[torch.Tensor]
    ) -> tuple[Callable[[], list[float]], torch.Tensor, float]:
        """Return the loss of each device, and a sum of which a multiple is the sum of losses."""
        objective = self._model.objective
        if is_mean_cross_entropy(objective, outputs, ys[0]):
            samples = sample_losses(outputs, torch.stack(list(ys)))
            return lambda: mean_losses(samples.detach()), samples.sum(), 1 / samples.shape[1]
        pairs = zip(outputs.unbind(), ys, strict=True)
        losses = torch.stack([objective.loss(objective.read(part, y), y) for part, y in pairs])
        return losses.tolist, losses.sum(), 1.0

    def _separate(self, total: torch.Tensor, factor: float, count: int) -> torch.Tensor:
        """Return a row per device with its gradient; the sum of losses is `factor * total`."""
        seen = [self._once(layer) for layer in self._layers]
        of_outputs = torch.autograd.grad(
            total, [layer.outputs for layer in seen], torch.full_like(total, factor)
        )
        columns = []
        for layer, (inputs, _), gradient in zip(self._layers, seen, of_outputs, strict=True):
            of_devices = gradient.reshape(count, -1, gradient.shape[-1])
            samples = inputs.reshape(count, -1, inputs.shape[-1])
            columns.append(of_devices.transpose(1, 2).bmm(samples).flatten(1))
            if layer.bias is not None:
                columns.append(of_devices.sum(1))
        return torch.cat(columns, 1)

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
