"""What is trained while things go wrong, and the files by which devices are told to misbehave."""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

import aquila
from helpers.problems import ridge

DEVICES, DIMENSION = 3, 30
LONGEST_HOLD = 120.0
PROBLEM = ridge(DEVICES, DIMENSION)
OPTIONS = {"aquila": {"b_min": 2}, "aquila_dither": {}}
NAME = os.environ.get("FAULTS_METHOD", "aquila")
METHOD = aquila.create(NAME, alpha=0.5 / PROBLEM.smoothness(), **OPTIONS[NAME])


def theta0() -> torch.Tensor:
    return torch.zeros(DIMENSION)


def faulty_device(
    device: int, control_folder: Path
) -> Callable[[torch.Tensor], tuple[float, torch.Tensor]]:
    """Return a device's data; while `hold-0` is there, device 0 stays in the middle of its turn.

    Whoever is in a turn says so by its process id in `working-0`. `nan-0` spoils its gradient.
    """

    def answer(theta: torch.Tensor) -> tuple[float, torch.Tensor]:
        torch.set_num_threads(1)
        (control_folder / f"working-{device}").write_text(str(os.getpid()))
        end = time.monotonic() + LONGEST_HOLD
        while (control_folder / f"hold-{device}").exists() and time.monotonic() < end:
            time.sleep(0.05)
        loss, gradient = PROBLEM.devices[device](theta)
        return loss, gradient * math.nan if (
            control_folder / f"nan-{device}"
        ).exists() else gradient

    return answer
