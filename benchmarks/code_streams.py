"""Streams of codes to benchmark a coder: synthetic or training vectors on several grids."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from aquila.core.innovation import aquila_level, measure
from aquila.core.packet import Codes, code_dtype
from aquila.core.quantize import levels_for_bits, midrise, stochastic_round
from aquila.core.random import Key
from aquila.tasks import build_model
from aquila.tasks.datasets import read_dataset
from aquila.tasks.transformer import token_loss


@dataclass(frozen=True, eq=False)
class Source:
    """A vector and its origin."""

    name: str
    data: str
    vector: torch.Tensor


@dataclass(frozen=True, eq=False)
class Stream:
    """Codes of a source on one grid."""

    source: str
    data: str
    grid: str
    codes: Codes


@dataclass(frozen=True)
class Training:
    """How to train a model for a few steps."""

    model: str
    options: dict
    data: str
    loss: Callable
    batch: int
    steps: int
    rate: float


DISTRIBUTIONS = {
    "Gaussian": lambda rng, d: rng.standard_normal(d, np.float32),
    "Laplace": lambda rng, d: rng.laplace(size=d),
    "Student-t(3)": lambda rng, d: rng.standard_t(3, d),
}

TRAININGS = {
    "CNN": Training("cnn", {"channels": 3, "size": 32}, "cifar10", cross_entropy, 64, 20, 0.05),
    "ResNet-18": Training("resnet18", {}, "cifar10", cross_entropy, 32, 8, 0.05),
    "Transformer": Training("transformer", {}, "wikitext2", token_loss, 8, 6, 0.1),
}


def random_source(name: str, dimension: int, seed: int) -> Source:
    """Return a vector with independent coordinates."""
    rng = Key((seed, list(DISTRIBUTIONS).index(name), dimension)).numpy()
    vector = DISTRIBUTIONS[name](rng, dimension).astype(np.float32)
    return Source(name, "independent coordinates", torch.from_numpy(vector))


def innovation_source(name: str, seed: int, folder: str | None, max_steps: float) -> Source:
    """Return the difference of two successive stochastic gradients after a few steps of SGD."""
    training = TRAININGS[name]
    torch.manual_seed(seed)
    data, (inputs, targets) = training_set(training.data, folder, seed)
    model = build_model(training.model, **training.options)
    gradient = None
    for _ in range(int(min(training.steps, max_steps)) + 1):
        chosen = torch.randint(len(inputs), (training.batch,))
        model.zero_grad()
        training.loss(model(inputs[chosen]), targets[chosen]).backward()
        before = gradient
        gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= training.rate * parameter.grad
    return Source(name, f"innovation on {data}", gradient - before)


def training_set(name: str, folder: str | None, seed: int) -> tuple[str, tuple]:
    """Return name and samples of a data set, or of its synthetic version if it is missing."""
    try:
        return name, read_dataset(name, folder).train
    except FileNotFoundError:
        return f"synthetic_{name}", read_dataset(f"synthetic_{name}", seed=seed).train


def at_aquila_level(v: torch.Tensor, least: int = 1) -> Codes | None:
    """Return the codes that AQUILA sends for an innovation."""
    return midrise(v, max(aquila_level(measure(v, torch.zeros_like(v))), least))


def round_with_zero_level(v: torch.Tensor, steps: float) -> Codes:
    """Return v rounded to a grid with a zero, whose step is a multiple of the rms of v."""
    step = steps * v.square().mean(dtype=torch.float64).sqrt().to(v.dtype)
    levels = torch.round(v / step)
    lowest, highest = levels.aminmax()
    bits = max(1, int(highest - lowest).bit_length())
    codes = (levels - lowest).to(code_dtype(bits))
    return Codes(codes, bits, (lowest * step).reshape(1), step.reshape(1), v.numel())


def grids(seed: int) -> dict[str, Callable[[torch.Tensor], Codes | None]]:
    """Return the quantizers by name."""
    return {
        "AQUILA": at_aquila_level,
        "AQUILA, b >= 2": partial(at_aquila_level, least=2),
        "QSGD, 6 bits": lambda v: stochastic_round(v, levels_for_bits(6), Key((seed,))),
        "LAQ, 6 bits": lambda v: midrise(v, 6),
        **{f"zero, {k} rms": partial(round_with_zero_level, steps=k) for k in (1, 2, 4, 6)},
    }


def code_streams(source: Source, seed: int) -> Iterator[Stream]:
    """Yield the source on every grid; "b >= 2" only where it changes AQUILA's level."""
    paper_bits = at_aquila_level(source.vector).bits
    for grid, quantize in grids(seed).items():
        if grid == "AQUILA, b >= 2" and paper_bits >= 2:
            continue
        yield Stream(source.name, source.data, grid, quantize(source.vector))


def code_counts(codes: torch.Tensor) -> np.ndarray:
    """Return the number of occurrences of each code."""
    return torch.bincount(codes.cpu().int()).numpy()


def code_entropy(codes: torch.Tensor) -> float:
    """Return the order-0 entropy in bits per coordinate."""
    counts = code_counts(codes)
    frequencies = counts[counts > 0] / codes.numel()
    return float(-(frequencies * np.log2(frequencies)).sum()) + 0.0  # no negative zero
