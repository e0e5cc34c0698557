"""The work that all simulators do, and the log of their rounds."""

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from aquila.tasks import build_model

ALPHA, SEED, CLASSES = 0.05, 0, 10


@dataclass(frozen=True)
class Case:
    """A fleet of devices, each with samples of one shape, and the model they train."""

    devices: int
    samples: int
    shape: tuple[int, ...]
    model: str


CASES = {
    "compute": Case(devices=100, samples=500, shape=(1, 28, 28), model="cnn"),
    "overhead": Case(devices=1000, samples=20, shape=(784,), model="linear"),
}


@dataclass(frozen=True)
class Workload:
    """Gradient descent: devices compute full gradients, the server steps along their mean.

    `option` is the part of a simulator's name after the colon.
    """

    case: str
    folder: Path
    rounds: int
    option: str = ""

    @property
    def devices(self):
        return CASES[self.case].devices

    def model(self):
        """Return the model with its initial parameters, the same for all simulators."""
        torch.manual_seed(SEED)
        case = CASES[self.case]
        return torch.nn.Linear(784, CLASSES) if case.model == "linear" else build_model(case.model)

    def shards(self):
        """Return inputs and targets of every device, memory-mapped from disk."""
        inputs, targets = (
            torch.from_numpy(np.load(path, mmap_mode="c")) for path in data_files(self.folder)
        )
        return list(zip(inputs, targets, strict=True))


@dataclass
class RoundLog:
    """End time of each round, by a clock that all processes share, and its initial loss.

    `cpu_ends` are the CPU seconds of the process until the end of each round.
    """

    ends: list[float] = field(default_factory=list)
    cpu_ends: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def end_round(self, loss):
        self.ends.append(time.monotonic())
        self.cpu_ends.append(time.process_time())
        self.losses.append(float(loss))


def data_files(folder):
    return folder / "inputs.npy", folder / "targets.npy"


def write_data(name, folder):
    """Write random samples and labels of a case."""
    case = CASES[name]
    generator = torch.Generator().manual_seed(SEED)
    count = case.devices, case.samples
    inputs, targets = data_files(folder)
    np.save(inputs, torch.randn(*count, *case.shape, generator=generator).numpy())
    np.save(targets, torch.randint(0, CLASSES, count, generator=generator).numpy())
