"""Gradients of many devices in one pass, where that gives the same bits as separate passes."""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch

from aquila.core.random import Key
from aquila.core.vector import Vector
from aquila.training.flat_module import MAX_PASS_TARGETS, FlatModule
from aquila.training.joint_pass import DeviceGradient, HasData, JointPass, NotJointError

MAX_PASS_NUMBERS = 2**22
"""Limit per pass for the coordinates of all gradients, and for the numbers in all inputs."""

MAX_PASS_DEVICES = 128
"""Devices per pass; the next pass runs while these devices take their turns."""

TRIAL_GRADIENTS = 64
"""Gradients compared per trial: where rounding differs, it shows in about one gradient of four."""

MIN_GRADIENTS = 2 * TRIAL_GRADIENTS
"""Gradients of a run, including those of the next round, from which on a trial pays."""

Shape = tuple[int, torch.Size, torch.Size]
"""Number of devices in a pass, and the shapes of each device's inputs and targets."""


@dataclass(eq=False)
class DeviceGroup:
    """Devices whose gradients are computed in one pass, and the result."""

    devices: Sequence[HasData]
    result: "Future[Sequence[DeviceGradient]] | None" = None
    gradients: Sequence[DeviceGradient] = ()
    """The result, once a device has waited for it."""
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
        self._announced = 0
        self._theta = model.theta[:0]
        self._groups: list[DeviceGroup] = []
        self._positions: dict[int, tuple[int, int]] = {}

    @cached_property
    def _joint_pass(self) -> JointPass | None:
        try:
            return JointPass(self._model)
        except NotJointError:
            return None

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "batched", lambda: torch.set_num_threads(1))

    def prefetch(self, theta: Vector, devices: Sequence[HasData]) -> None:
        """Announce the devices of the next turns, in order, and the model they compute at."""
        self._announced += len(devices)
        if self._announced < MIN_GRADIENTS or self._joint_pass is None:
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
        found = self._positions.pop(id(device), None) if theta is self._theta else None
        if found is None:
            return None
        number, position = found
        group = self._groups[number]
        if group.requests == 0:
            self._start(self._groups[number : number + 2], theta)
            if group.result is not None:
                group.gradients = group.result.result()
        gradient = group.gradients[position] if group.gradients else None
        group.requests += 1
        if group.requests == len(group.devices):
            group.result, group.gradients = None, ()  # free the memory
        return gradient

    def _start(self, groups: Sequence[DeviceGroup], theta: Vector) -> None:
        """Start the pass of a group, and the next one, so that it runs during the turns of this."""
        try:
            for group in groups:
                if group.result is None and self._should_batch(group):
                    group.result = self._thread.submit(self._one_pass, group.devices, theta)
        except BaseException:
            # an interrupt may have come before a new thread was registered for shutdown
            self._thread.shutdown(cancel_futures=True)
            del self._thread  # the next round creates another
            raise

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
        if len(devices) == 1 or self._joint_pass is None:
            return False
        batched = separate = 0.0
        try:
            self._joint_pass.check(devices[0].tensors[0])
            for number in range(-(-TRIAL_GRADIENTS // len(devices))):
                theta = self._theta + number * (Key((0, number)).uniform(self._theta) - 0.5)
                start = time.thread_time()
                single = [self._model.gradient(theta, d.tensors, Key(())) for d in devices]
                middle = time.thread_time()
                joint = self._one_pass(devices, theta)
                separate, batched = separate + middle - start, batched + time.thread_time() - middle
                if not all(map(_same_bits, joint, single)):
                    return False
        except (NotJointError, RuntimeError, ValueError):  # not every module and loss can be joined
            return False
        return batched < separate

    def _one_pass(self, devices: Sequence[HasData], theta: Vector) -> Sequence[DeviceGradient]:
        """Compute the gradients of all devices at once."""
        if self._joint_pass is None:
            raise NotJointError
        return self._joint_pass(devices, theta)


def _split_evenly(devices: list[HasData], most: int) -> list[list[HasData]]:
    """Split into as few groups as possible, of nearly equal size."""
    count = -(-len(devices) // max(1, most))
    ends = [len(devices) * number // count for number in range(count + 1)]
    return [devices[start:end] for start, end in pairwise(ends)]


def _same_bits(one: DeviceGradient, other: tuple[float, Vector]) -> bool:
    loss, gradient = other
    bits = torch.int32 if gradient.dtype == torch.float32 else torch.int64
    return one.loss == loss and one.gradient.view(bits).equal(gradient.view(bits))
