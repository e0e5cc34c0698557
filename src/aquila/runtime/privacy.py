"""Differential privacy: clipping, Gaussian noise, and which methods it works with.

The protected unit is everything about one device. Neighbouring fleets differ in the data of one
device, which may be replaced by any other data. The vector of a device has at most the norm
`dp_clip` after clipping, so replacing it moves the sum by at most 2 · `dp_clip`.

    server    The server clips each upload and adds noise with the standard deviation
              dp_noise · dp_clip to their sum. The method sees only the noisy mean.
    devices   Each device clips its gradient or local update and adds such noise to it before the
              method sees it. Everything that the device sends follows from the noisy vector.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from aquila.core.fleet import DeviceId, Fleet
from aquila.core.method import Method, Turn, has_memory, steps_along_mean
from aquila.core.packet import Dense, Packet
from aquila.core.random import Key
from aquila.core.vector import Vector, squared_norm
from aquila.runtime.nan_guard import GuardedOracle
from aquila.runtime.options import RunOptions

PRIVATE_LOSS = 0.0
"""Loss that a method gets on a device that adds noise. The true loss would leave the device."""


@dataclass(frozen=True)
class GaussianNoise:
    """Clips vectors to the norm `clip` and adds noise with standard deviation `noise * clip`."""

    clip: float
    noise: float

    @classmethod
    def of(cls, options: RunOptions) -> "GaussianNoise":
        """Return the noise of a run."""
        return cls(options.dp_clip, options.dp_noise)

    def clipped(self, vector: Vector) -> Vector:
        """Return the vector in float64, scaled down to at most the norm `clip`."""
        wide = vector.to(torch.float64)
        norm = squared_norm(wide) ** 0.5
        # one part in 10^12 covers the rounding of the product
        return wide if norm <= self.clip else wide * (self.clip / norm * (1 - 1e-12))

    def draw(self, like: Vector, key: Key) -> Vector:
        """Return the noise, in float64."""
        return key.normal(like) * (self.noise * self.clip)

    def noisy_mean(self, vectors: Iterable[Vector], divisor: int, like: Vector, key: Key) -> Vector:
        """Return (the sum of the clipped vectors + noise) ÷ divisor."""
        total = torch.zeros_like(like, dtype=torch.float64)
        for vector in vectors:
            total += self.clipped(vector)
        return ((total + self.draw(total, key)) / divisor).to(like.dtype)

    def noisy_vector(self, vector: Vector, key: Key) -> Vector:
        """Return the clipped vector with noise, as a device sends it."""
        clipped = self.clipped(vector)
        return (clipped + self.draw(clipped, key)).to(vector.dtype)


def check_privacy(method: Method, fleet: Fleet, options: RunOptions) -> None:
    """Raise ValueError in one sentence if the run cannot promise differential privacy."""
    if not options.is_private or options.dp_noise_by == "devices":
        return
    name = method.name
    if has_memory(method.server):
        raise ValueError(
            f"{name} cannot have noise from the server: it remembers what devices sent, so clipped "
            "and noisy uploads would differ from the memories of the devices; set "
            "dp_noise_by=devices"
        )
    if not steps_along_mean(method.server):
        raise ValueError(
            f"{name} cannot have noise from the server: its step does not depend on the uploads "
            "through their mean alone, so clipping bounds nothing; set dp_noise_by=devices"
        )
    if any(indices is not None for indices in fleet.slices):
        raise ValueError(
            "noise from the server needs devices that hold the whole model; with several widths, "
            "set dp_noise_by=devices"
        )
    if set(fleet.weights) != {1.0}:
        raise ValueError(
            "noise from the server needs weights=uniform, because the number of samples of a "
            "device is private"
        )


def describe_privacy(options: RunOptions) -> str:
    """Return the options that server and devices must agree on, as text."""
    return (
        f"dp_clip={options.dp_clip:g} dp_noise={options.dp_noise:g} "
        f"dp_noise_by={options.dp_noise_by}"
    )


def release_mean(
    noise: GaussianNoise,
    replies: Mapping[DeviceId, Packet],
    orders: Collection[DeviceId],
    theta: Vector,
    key: Key,
) -> dict[DeviceId, Packet]:
    """Return one reply per order, all with the noisy mean of the uploads.

    A device that skipped, failed or did not answer counts as zero. So neither the divisor nor the
    number of replies depends on the data.

    Args:
        noise: Clipping and noise.
        replies: The replies that arrived.
        orders: Devices that were ordered.
        theta: The model.
        key: Key of the noise.
    """
    uploads = (reply.vector.decode() for reply in replies.values() if reply.vector is not None)
    mean = noise.noisy_mean(uploads, len(orders), theta, key)
    any_round = next(iter(replies.values())).round if replies else 0
    return dict.fromkeys(sorted(orders), Packet(any_round, Dense(mean)))


@dataclass
class NoisyOracle:
    """An oracle that clips its vector and adds noise. It answers once, and hides the loss.

    A second vector of the same round would need more noise than the accountant counts.
    """

    inner: GuardedOracle
    noise: GaussianNoise
    key: Key
    method: str
    answered: bool = False

    @property
    def samples(self) -> int:
        """Number of samples of the device."""
        return self.inner.samples

    @property
    def shapes(self) -> Sequence[torch.Size] | None:
        """The shapes of the model's tensors, None if the oracle does not state them."""
        return self.inner.shapes

    def gradient(self, theta: Vector) -> tuple[float, Vector]:
        """Return 0 instead of the loss, and the noisy gradient."""
        return self._noisy(self.inner.gradient(theta)[1])

    def train(self, theta: Vector, alpha: float) -> tuple[float, Vector]:
        """Return 0 instead of the loss, and the noisy local update."""
        return self._noisy(self.inner.train(theta, alpha)[1])

    def loss(self, theta: Vector, all_samples: bool) -> float:
        """Raise ValueError: a loss gets no noise."""
        raise ValueError(_needs_loss(self.method))

    def _noisy(self, vector: Vector) -> tuple[float, Vector]:
        if self.answered:
            raise ValueError(
                f"{self.method} computes two gradients per round, but the noise protects one; "
                "choose another method for differential privacy"
            )
        self.answered = True
        return PRIVATE_LOSS, self.noise.noisy_vector(vector, self.key)


def private_turn(method: str, turn: Turn[Any]) -> Turn[Any]:
    """Return a turn without the note of the loss; ValueError if the method sends the loss."""
    if "loss" in turn.reply.scalars:
        raise ValueError(_needs_loss(method))
    notes = {name: value for name, value in turn.notes.items() if name != "loss"}
    return replace(turn, notes=notes)


def _needs_loss(method: str) -> str:
    return (
        f"{method} sends losses of the devices, which get no noise; choose another method for "
        "differential privacy"
    )
