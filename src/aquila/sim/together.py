"""Gradients of many devices in one pass, wherever that gives the bits of one device at a time."""

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
from aquila.sim.flat import CHUNK, Batch, FlatModule

LARGEST_PASS = 2**22
"""Coordinates of all the gradients of one pass, and numbers in all its inputs."""

AT_MOST = 128
"""Devices in one pass; the next one is under way while these have their turns."""

PATIENCE = 1.0
"""Seconds of one by one before it is tried: torch takes as long to get ready for the first pass."""

ENOUGH = 64
"""Gradients that must have the same bits both ways: rounding that differs shows in one of four."""

Shape = tuple[int, torch.Size, torch.Size]


class Held(Protocol):
    """Someone who holds samples."""

    @property
    def data(self) -> Batch:
        """Inputs and targets."""


Outcome = tuple[torch.Tensor, torch.Tensor]
"""Gradients and outputs of several devices."""


class Answer(NamedTuple):
    """Loss and gradient of a device, and the outputs they come from."""

    loss: float
    gradient: Vector
    outputs: torch.Tensor


@dataclass(eq=False)
class Group:
    """Devices whose gradients are computed in one pass, and what comes of it."""

    devices: Sequence[Held]
    answers: "Future[Outcome] | None" = None
    asked: int = 0

    @property
    def shape(self) -> Shape:
        """How many devices there are, and how large their samples."""
        x, y = self.devices[0].data
        return len(self.devices), x.shape, y.shape


class Together:
    """Answers for devices that will be asked one after another for gradients at the same model.

    Arithmetic on a group of devices need not round like that on one. So the first group of each
    shape is computed both ways, and later ones in one pass only if all bits were the same and it
    was faster.
    """

    def __init__(self, model: FlatModule) -> None:
        self._model = model
        self._pays: dict[Shape, bool] = {}
        self._began: float | None = None
        self._theta = model.theta[:0]
        self._groups: list[Group] = []
        self._places: dict[int, tuple[int, int]] = {}

    @cached_property
    def _module(self) -> nn.Module:
        """A copy, since a functional call puts parameters into the module as long as it lasts."""
        return copy.deepcopy(self._model.module)

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "together", lambda: torch.set_num_threads(1))

    def expect(self, theta: Vector, devices: Sequence[Held]) -> None:
        """Be told who will be asked, in this order, and at which model."""
        if self._began is None:
            self._began = time.monotonic()
        if time.monotonic() - self._began < PATIENCE:
            return
        by_shape: dict[tuple[torch.Size, torch.Size], list[Held]] = {}
        for device in devices:
            x, y = device.data
            by_shape.setdefault((x.shape, y.shape), []).append(device)
        self._theta = theta
        self._groups = [
            Group(part)
            for shapes, alike in by_shape.items()
            for part in _evenly(alike, self._most(*shapes))
        ]
        self._places = {
            id(device): (number, place)
            for number, group in enumerate(self._groups)
            for place, device in enumerate(group.devices)
        }

    def answer(self, device: Held, theta: Vector) -> Answer | None:
        """Return what the device computes at a model, or None if it has to do so by itself."""
        if theta is not self._theta or id(device) not in self._places:
            return None
        number, place = self._places.pop(id(device))
        try:
            for ahead in self._groups[number : number + 2]:
                if ahead.asked == 0 and ahead.answers is None and self._pays_for(ahead):
                    ahead.answers = self._thread.submit(self._one_pass, ahead.devices, theta)
        except BaseException:
            # an interrupt may have come before a new thread was known to those who end it
            self._thread.shutdown(cancel_futures=True)
            del self._thread  # the next round makes another
            raise
        group = self._groups[number]
        answers, group.asked = group.answers, group.asked + 1
        if group.asked == len(group.devices):
            group.answers = None  # nobody else needs this memory
        return None if answers is None else self._answer(device, *answers.result(), place)

    def _most(self, x: torch.Size, y: torch.Size) -> int:
        samples = CHUNK // max(1, y.numel())
        return min(AT_MOST, samples, LARGEST_PASS // max(self._model.theta.numel(), x.numel()))

    def _pays_for(self, group: Group) -> bool:
        """Whether one pass is as good for a group as one device at a time, and faster."""
        shape = group.shape
        if shape not in self._pays:
            # on that thread, so that it comes after what is under way there
            self._pays[shape] = self._thread.submit(self._try, group.devices).result()
        return self._pays[shape]

    def _try(self, devices: Sequence[Held]) -> bool:
        """Compute both ways and compare bits and time, at this model and at others around it."""
        if len(devices) == 1:
            return False
        together = apart = 0.0
        for number in range(-(-ENOUGH // len(devices))):
            theta = self._theta + number * (Key((0, number)).uniform(self._theta) - 0.5)
            try:
                self._one_pass(devices, theta)
                start = time.perf_counter()
                joint = self._one_pass(devices, theta)
            except (RuntimeError, ValueError):  # not every module and loss can be batched
                return False
            middle = time.perf_counter()
            single = [self._model.gradient(theta, device.data, Key(())) for device in devices]
            together, apart = together + middle - start, apart + time.perf_counter() - middle
            answers = [self._answer(device, *joint, m) for m, device in enumerate(devices)]
            if not all(map(_same_bits, answers, single)):
                return False
        return together < apart

    def _one_pass(self, devices: Sequence[Held], theta: Vector) -> Outcome:
        model, (xs, ys) = self._model, zip(*(device.data for device in devices), strict=True)

        def loss(
            parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            outputs: torch.Tensor = functional_call(self._module, parameters, (x,))
            return model.loss(outputs, y), outputs

        gradient_of = vmap(grad(loss, has_aux=True), in_dims=(None, 0, 0))
        parts, outputs = gradient_of(model.named(theta), torch.stack(xs), torch.stack(ys))
        return torch.cat([part.flatten(1) for part in parts.values()], dim=1), outputs

    def _answer(
        self, device: Held, gradients: torch.Tensor, outputs: torch.Tensor, place: int
    ) -> Answer:
        """Return what one device of a pass gets; losses of many are added up in another order."""
        loss = float(self._model.loss(outputs[place], device.data[1]))
        return Answer(loss, gradients[place].clone(), outputs[place])


def _evenly(devices: list[Held], most: int) -> list[list[Held]]:
    """Cut into as few batches as may be, all of nearly one size."""
    count = -(-len(devices) // max(1, most))
    ends = [len(devices) * number // count for number in range(count + 1)]
    return [devices[start:end] for start, end in pairwise(ends)]


def _same_bits(one: Answer, other: tuple[float, Vector]) -> bool:
    loss, gradient = other
    bits = torch.int32 if gradient.dtype == torch.float32 else torch.int64
    return one.loss == loss and one.gradient.view(bits).equal(gradient.view(bits))
