"""Gradients of many devices in one pass, where that gives the same bits as separate passes."""

import copy
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.training.flat_module import MAX_PASS_TARGETS, FlatModule
from aquila.training.inputs import TensorBatch

MAX_PASS_NUMBERS = 2**22
"""Limit per pass for the coordinates of all gradients, and for the numbers in all inputs."""

MAX_PASS_DEVICES = 128
"""Devices per pass; the next pass runs while these devices take their turns."""

TRIAL_DELAY_SECONDS = 1.0
"""Seconds of separate passes before a trial: the first batched pass takes that long to set up."""

TRIAL_GRADIENTS = 64
"""Gradients compared per trial: where rounding differs, it shows in about one gradient of four."""

Shape = tuple[int, torch.Size, torch.Size]
"""Number of devices in a pass, and the shapes of each device's inputs and targets."""


class HasData(Protocol):
    """An object with samples."""

    @property
    def tensors(self) -> TensorBatch:
        """Inputs and targets."""


PassResult = tuple[torch.Tensor, torch.Tensor]
"""Gradients and outputs of several devices."""


class DeviceGradient(NamedTuple):
    """Loss and gradient of a device, and the outputs they come from."""

    loss: float
    gradient: Vector
    outputs: torch.Tensor


@dataclass(eq=False)
class DeviceGroup:
    """Devices whose gradients are computed in one pass, and the result."""

    devices: Sequence[HasData]
    result: "Future[PassResult] | None" = None
    requests: int = 0
    """Devices of the group that have asked for their gradient."""

    @property
    def shape(self) -> Shape:
        """The shape of the pass."""
        x, y = self.devices[0].tensors
        return len(self.devices), x.shape, y.shape


class BatchedGradients:
    """Computes gradients ahead for devices that take their turns one after another.

    Arithmetic on a group of devices can round differently from arithmetic on one device. A trial
    therefore computes the first group of each shape both ways. Later groups of this shape run in
    one pass only if all bits were equal and the pass was faster.
    """

    def __init__(self, model: FlatModule) -> None:
        self._model = model
        self._worth_batching: dict[Shape, bool] = {}
        self._start_time: float | None = None
        self._theta = model.theta[:0]
        self._groups: list[DeviceGroup] = []
        self._positions: dict[int, tuple[int, int]] = {}

    @cached_property
    def _module(self) -> nn.Module:
        """A copy of the module, because a functional call changes its parameters while it runs."""
        return copy.deepcopy(self._model.module)

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "batched", lambda: torch.set_num_threads(1))

    def prefetch(self, theta: Vector, devices: Sequence[HasData]) -> None:
        """Announce the devices of the next turns, in order, and the model they compute at."""
        if self._start_time is None:
            self._start_time = time.monotonic()
        if time.monotonic() - self._start_time < TRIAL_DELAY_SECONDS:
            return
        by_shape: dict[tuple[torch.Size, torch.Size], list[HasData]] = {}
        for device in devices:
            x, y = device.tensors
            by_shape.setdefault((x.shape, y.shape), []).append(device)
        self._theta = theta
        self._groups = [
            DeviceGroup(part)
            for shapes, alike in by_shape.items()
            for part in _split_evenly(alike, self._max_devices(*shapes))
        ]
        self._positions = {
            id(device): (number, position)
            for number, group in enumerate(self._groups)
            for position, device in enumerate(group.devices)
        }

    def gradient(self, device: HasData, theta: Vector) -> DeviceGradient | None:
        """Return the gradient of a device at a model, or None if the device must compute it."""
        if theta is not self._theta or id(device) not in self._positions:
            return None
        number, position = self._positions.pop(id(device))
        try:
            # the next group too, so that its pass runs during the turns of this group
            for group in self._groups[number : number + 2]:
                if group.requests == 0 and group.result is None and self._should_batch(group):
                    group.result = self._thread.submit(self._one_pass, group.devices, theta)
        except BaseException:
            # an interrupt may have come before a new thread was registered for shutdown
            self._thread.shutdown(cancel_futures=True)
            del self._thread  # the next round creates another
            raise
        group = self._groups[number]
        result, group.requests = group.result, group.requests + 1
        if group.requests == len(group.devices):
            group.result = None  # free the memory
        return None if result is None else self._device_gradient(device, *result.result(), position)

    def _max_devices(self, x: torch.Size, y: torch.Size) -> int:
        samples = MAX_PASS_TARGETS // max(1, y.numel())
        return min(
            MAX_PASS_DEVICES, samples, MAX_PASS_NUMBERS // max(self._model.theta.numel(), x.numel())
        )

    def _should_batch(self, group: DeviceGroup) -> bool:
        """Whether one pass for the group gives the same bits and is faster."""
        shape = group.shape
        if shape not in self._worth_batching:
            # on the same thread, so that it runs after the passes queued there
            self._worth_batching[shape] = self._thread.submit(
                self._run_trial, group.devices
            ).result()
        return self._worth_batching[shape]

    def _run_trial(self, devices: Sequence[HasData]) -> bool:
        """Compute both ways and compare bits and time, at this model and at others near it."""
        if len(devices) == 1:
            return False
        batched = separate = 0.0
        for number in range(-(-TRIAL_GRADIENTS // len(devices))):
            theta = self._theta + number * (Key((0, number)).uniform(self._theta) - 0.5)
            try:
                self._one_pass(devices, theta)
                start = time.perf_counter()
                joint = self._one_pass(devices, theta)
            except (RuntimeError, ValueError):  # not every module and loss can be batched
                return False
            middle = time.perf_counter()
            single = [self._model.gradient(theta, device.tensors, Key(())) for device in devices]
            batched, separate = batched + middle - start, separate + time.perf_counter() - middle
            gradients = [
                self._device_gradient(device, *joint, m) for m, device in enumerate(devices)
            ]
            if not all(map(_same_bits, gradients, single)):
                return False
        return batched < separate

    def _one_pass(self, devices: Sequence[HasData], theta: Vector) -> PassResult:
        """Compute the gradients and outputs of all devices at once."""
        model, (xs, ys) = self._model, zip(*(device.tensors for device in devices), strict=True)

        def loss(
            parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            outputs: torch.Tensor = functional_call(self._module, parameters, (x,))
            return model.objective.loss(outputs, y), outputs

        gradient_of = vmap(grad(loss, has_aux=True), in_dims=(None, 0, 0))
        parts, outputs = gradient_of(model.parameter_views(theta), torch.stack(xs), torch.stack(ys))
        return torch.cat([part.flatten(1) for part in parts.values()], dim=1), outputs

    def _device_gradient(
        self, device: HasData, gradients: torch.Tensor, outputs: torch.Tensor, position: int
    ) -> DeviceGradient:
        """Return the part of one device; its loss is summed separately, to round the same way."""
        loss = float(self._model.objective.loss(outputs[position], device.tensors[1]))
        return DeviceGradient(loss, gradients[position].clone(), outputs[position])


def _split_evenly(devices: list[HasData], most: int) -> list[list[HasData]]:
    """Split into as few groups as possible, of nearly equal size."""
    count = -(-len(devices) // max(1, most))
    ends = [len(devices) * number // count for number in range(count + 1)]
    return [devices[start:end] for start, end in pairwise(ends)]


def _same_bits(one: DeviceGradient, other: tuple[float, Vector]) -> bool:
    loss, gradient = other
    bits = torch.int32 if gradient.dtype == torch.float32 else torch.int64
    return one.loss == loss and one.gradient.view(bits).equal(gradient.view(bits))
