"""Small seeded problems with known solutions, for tests."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

import aquila

Vector = torch.Tensor
LocalLoss = Callable[[Vector], tuple[float, Vector]]


@dataclass(frozen=True)
class Ridge:
    """f_m(θ) = ½ ||A_m θ - y_m||² / n + ½ λ ||θ||², one block of rows per device."""

    blocks: list[torch.Tensor]
    targets: list[torch.Tensor]
    weight: float

    @property
    def dimension(self) -> int:
        return self.blocks[0].shape[1]

    @property
    def devices(self) -> list[LocalLoss]:
        return [partial(self.local, m) for m in range(len(self.blocks))]

    def local(self, m: int, theta: Vector) -> tuple[float, Vector]:
        A, n = self.blocks[m].to(theta.dtype), len(self.targets[m])
        residual = A @ theta - self.targets[m].to(theta.dtype)
        loss = (residual @ residual / n + self.weight * theta @ theta) / 2
        return float(loss), A.T @ residual / n + self.weight * theta

    def loss(self, theta: Vector) -> float:
        return sum(self.local(m, theta)[0] for m in range(len(self.blocks))) / len(self.blocks)

    def hessian(self) -> torch.Tensor:
        mean = sum(A.T @ A / len(A) for A in self.blocks) / len(self.blocks)
        return mean + self.weight * torch.eye(self.dimension, dtype=torch.float64)

    def optimum(self) -> Vector:
        right = sum(A.T @ y / len(A) for A, y in zip(self.blocks, self.targets, strict=True)) / len(
            self.blocks
        )
        return torch.linalg.solve(self.hessian(), right)

    def smoothness(self) -> float:
        return float(torch.linalg.eigvalsh(self.hessian()).max())


def ridge(devices: int = 5, dimension: int = 20, rows: int = 40, seed: int = 0) -> Ridge:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    blocks = [normal(rows, dimension) for _ in range(devices)]
    # devices have different optima, so their gradients at the common optimum are not zero
    targets = [A @ normal(dimension) + 0.1 * normal(rows) for A in blocks]
    return Ridge(blocks, targets, weight=0.1)


def all_gradients(problem: Ridge) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that maps a model to the gradients of all devices, one row per device."""

    def at(theta: np.ndarray) -> np.ndarray:
        return np.stack([local(torch.from_numpy(theta))[1].numpy() for local in problem.devices])

    return at


def device_states(simulation: aquila.Simulation) -> list[Any]:
    """Return the devices' states after each device has processed the server's latest ack."""
    for m, device in enumerate(simulation.devices):
        device.apply_ack(simulation.server.acks[m])
    return [device.state for device in simulation.devices]
