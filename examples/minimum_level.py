"""The effect of AQUILA's minimum level: ridge regression, 10 devices, full gradients.

In the paper a device may quantize to one bit per coordinate. The error then never shrinks, and the
model diverges. With at least two bits (b_min = 2) AQUILA converges like gradient descent. The table
shows f(θ) - f* after 150 rounds, and the bits per coordinate, device and round as the paper counts
them. It has one row per step size alpha, as a multiple of 1/L, where L is the largest curvature.
The seed is 0, and the script takes about ten seconds.

    python examples/minimum_level.py
"""

from collections.abc import Callable, Sequence

import torch

import aquila

DEVICES, SAMPLES, DIMENSION, PENALTY = 10, 60, 400, 0.1
ROUNDS = 150
VARIANTS: dict[str, dict[str, float | str]] = {
    "b_min=1": {"b_min": 1},
    "b_min=2": {"b_min": 2},
    "tight": {"level_rule": "tight"},
}

Device = Callable[[torch.Tensor], tuple[float, torch.Tensor]]


def make_device(A: torch.Tensor, y: torch.Tensor) -> Device:
    def loss_and_gradient(theta: torch.Tensor) -> tuple[float, torch.Tensor]:
        residual = A @ theta - y
        loss = residual @ residual / (2 * len(y)) + PENALTY / 2 * theta @ theta
        return float(loss), A.T @ residual / len(y) + PENALTY * theta

    return loss_and_gradient


def make_problem(seed: int) -> tuple[list[Device], torch.Tensor, torch.Tensor]:
    """Return the devices, the Hessian of the average loss, and its optimum."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    A = draw(DEVICES, SAMPLES, DIMENSION)
    y = A @ draw(DIMENSION) + 0.1 * draw(DEVICES, SAMPLES)
    rows = A.reshape(-1, DIMENSION)
    hessian = rows.T @ rows / len(rows) + PENALTY * torch.eye(DIMENSION, dtype=torch.float64)
    optimum = torch.linalg.solve(hessian, rows.T @ y.reshape(-1) / len(rows))
    return [make_device(*data) for data in zip(A, y, strict=True)], hessian, optimum


def train(name: str, devices: Sequence[Device], **parameters: float | str) -> aquila.Run:
    theta0 = torch.zeros(DIMENSION, dtype=torch.float64)
    return aquila.simulate(aquila.create(name, **parameters), theta0, devices, ROUNDS)


def main() -> None:
    devices, hessian, optimum = make_problem(seed=0)
    L = float(torch.linalg.eigvalsh(hessian)[-1])

    def gap(theta: torch.Tensor) -> float:
        return float((theta - optimum) @ hessian @ (theta - optimum)) / 2

    print(f"start {gap(0 * optimum):.3g}, after {ROUNDS} rounds:")
    print("".join(f"{title:>20}" for title in ("alpha L", *VARIANTS, "gradient descent")))
    for fraction in (1.0, 0.5, 0.1, 0.02):
        cells = [f"{fraction:g}"]
        for variant in VARIANTS.values():
            run = train("aquila", devices, alpha=fraction / L, **variant)
            bits = sum(record.paper_bits for record in run.records)
            cells.append(f"{gap(run.theta):.1e} {bits / (ROUNDS * DEVICES * DIMENSION):5.2f} bits")
        cells.append(f"{gap(train('fedsgd', devices, alpha=fraction / L).theta):.1e}")
        print("".join(f"{cell:>20}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
