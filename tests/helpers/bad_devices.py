"""Devices that send wrong gradients, for tests of attacks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.functional import cross_entropy, one_hot

from aquila.sim.oracle import as_shard
from aquila.tasks.datasets import read_dataset

Change = Callable[[torch.Tensor], torch.Tensor]

ATTACKS: dict[str, Change] = {
    "sign": lambda gradient: -gradient,
    "scaled": lambda gradient: 1000 * gradient,
    "constant": lambda gradient: torch.linspace(-10, 10, len(gradient)),
    "nan": lambda gradient: gradient * float("nan"),
}
"""What a bad device makes of its gradient or local update."""


@dataclass(frozen=True)
class BadOracle:
    """An oracle whose vectors are changed."""

    inner: Any
    change: Change

    @property
    def samples(self) -> int:
        return self.inner.samples

    @property
    def shapes(self):
        return getattr(self.inner, "shapes", None)

    def gradient(self, theta):
        loss, gradient = self.inner.gradient(theta)
        return loss, self.change(gradient)

    def train(self, theta, alpha):
        loss, update = self.inner.train(theta, alpha)
        return loss, self.change(update)


@dataclass(frozen=True)
class BadShard:
    """Data whose gradients are changed."""

    inner: Any
    change: Change

    @property
    def samples(self) -> int:
        return self.inner.samples

    def oracle(self, key):
        return BadOracle(self.inner.oracle(key), self.change)


def with_bad_devices(devices, kinds):
    """Replace every fifth device by a bad one; the kinds of attack take turns."""
    bad = {5 * n + 2: kinds[n % len(kinds)] for n in range(len(devices) // 5)}
    return [
        BadShard(device, ATTACKS[bad[number]]) if number in bad else device
        for number, device in enumerate(devices)
    ]


@dataclass(frozen=True)
class SoftmaxDigits:
    """Softmax regression on the digits, split at random; fast enough for attacks on many rounds."""

    parts: list[tuple[torch.Tensor, torch.Tensor]]
    test: tuple[torch.Tensor, torch.Tensor]

    @property
    def devices(self):
        return [as_shard(partial(self.local, x, y)) for x, y in self.parts]

    @staticmethod
    def local(x, y, theta):
        logits = x @ theta.view(-1, 10)
        gradient = x.T @ (logits.softmax(1) - one_hot(y, 10)) / len(y)
        return float(cross_entropy(logits, y)), gradient.reshape(-1)

    def accuracy(self, theta):
        x, y = self.test
        return float((x @ theta.view(-1, 10)).argmax(1).eq(y).float().mean())


def softmax_digits(devices):
    """Return softmax regression on the digits; the model has 650 coordinates."""
    data = read_dataset("digits", None, 0)
    (x, y), (test_x, test_y) = (
        (torch.cat([x.flatten(1), torch.ones(len(x), 1)], 1), y) for x, y in (data.train, data.test)
    )
    parts = torch.arange(len(x)).chunk(devices)
    return SoftmaxDigits([(x[part], y[part]) for part in parts], (test_x, test_y))
