"""Problems the tests train on: small, seeded, with everything about them known."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

import aquila

Vector = torch.Tensor
LocalLoss = Callable[[Vector], tuple[float, Vector]]

CONVERGENT_PARAMETERS = {
    "aquila": {"b_min": 2},
    "adaquantfl_levels": {"s_0": 32},
    "aquila_topk": {"density": 0.2},
    "ef21": {"density": 0.5},
    "diana": {"bits": 6},
    "eden": {"bits": 6},
}
"""Parameters under which a method gets to the optimum of these, where its defaults do not."""


@dataclass(frozen=True)
class Ridge:
    """f_m(θ) = ½ ||A_m θ - y_m||² / n + ½ λ ||θ||², one block of rows a device."""

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
    # every device has an optimum of its own, so that its gradient at the common one is not zero
    targets = [A @ normal(dimension) + 0.1 * normal(rows) for A in blocks]
    return Ridge(blocks, targets, weight=0.1)


def all_gradients(problem: Ridge) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function of the model that gives all devices' gradients, one row a device."""

    def at(theta: np.ndarray) -> np.ndarray:
        return np.stack([local(torch.from_numpy(theta))[1].numpy() for local in problem.devices])

    return at


def device_states(simulation: aquila.Simulation) -> list[Any]:
    """Return the devices' states once they know what the server has of them."""
    for m, device in enumerate(simulation.devices):
        device.apply_ack(simulation.server.acks[m])
    return [device.state for device in simulation.devices]
