"""The problem that is trained under faults, and devices that fail on demand."""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

import aquila
from helpers.problems import ridge

DEVICES, DIMENSION = 3, 30
MAX_HOLD_SECONDS = 120.0
PROBLEM = ridge(DEVICES, DIMENSION)
OPTIONS = {"aquila": {"b_min": 2}, "aquila_dither": {}}
NAME = os.environ.get("FAULTS_METHOD", "aquila")
METHOD = aquila.create(NAME, alpha=0.5 / PROBLEM.smoothness(), **OPTIONS[NAME])


def theta0() -> torch.Tensor:
    return torch.zeros(DIMENSION)


def faulty_device(
    device: int, control_folder: Path
) -> Callable[[torch.Tensor], tuple[float, torch.Tensor]]:
    """Return a device that reads its faults from files in the control folder.

    While `hold-N` exists, device N waits in the middle of its turn. While `nan-N` exists, its
    gradient is NaN. A device writes its process id to `working-N` when it starts a turn.
    """

    def answer(theta: torch.Tensor) -> tuple[float, torch.Tensor]:
        torch.set_num_threads(1)
        (control_folder / f"working-{device}").write_text(str(os.getpid()))
        end = time.monotonic() + MAX_HOLD_SECONDS
        while (control_folder / f"hold-{device}").exists() and time.monotonic() < end:
            time.sleep(0.05)
        loss, gradient = PROBLEM.devices[device](theta)
        is_nan = (control_folder / f"nan-{device}").exists()
        return loss, gradient * math.nan if is_nan else gradient

    return answer
