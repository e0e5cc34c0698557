"""What `run` and `compare` train on, and the options they share."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aquila.version import __version__

if TYPE_CHECKING:
    from aquila.runtime.finite import NanPolicy
    from aquila.sim.link import Link
    from aquila.sim.module import Problem

SETTINGS = "run.json"
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Setting:
    """Everything but the method: data, split, local work, link and length of a run."""

    devices: int
    classes_per_device: int
    rounds: int
    seed: int
    alpha: float
    work: str
    batch_size: int | None
    epochs: int
    loss_rate: float
    on_nan: NanPolicy

    @property
    def method_defaults(self) -> dict[str, object]:
        """Parameters that every method gets unless it was given its own."""
        return {"alpha": self.alpha, "work": self.work}

    def problem(self) -> Problem:
        """Load the digits, share them out and build the model."""
        import torch

        from aquila.core.random import Key, Purpose
        from aquila.sim.module import problem
        from aquila.tasks.digits import load_digits
        from aquila.tasks.mlp import mlp
        from aquila.tasks.partition import by_class

        torch.set_num_threads(1)  # a model this small only waits for a second thread
        data = load_digits(self.seed)
        x, y = data.train
        parts = by_class(y, self.devices, self.classes_per_device, Key((self.seed, Purpose.SPLIT)))
        torch.manual_seed(self.seed)
        module = mlp(inputs=x.shape[1], hidden=128, classes=data.classes)
        shards = [(x[part], y[part]) for part in parts]
        return problem(module, shards, data.test, batch_size=self.batch_size, epochs=self.epochs)

    def describe(self, parameters: int) -> str:
        """Return one line on what is being trained."""
        return (
            f"digits, {self.devices} devices with {self.classes_per_device} classes each, "
            f"{parameters:,} parameters, {self.rounds} rounds, alpha {self.alpha:g}, "
            f"seed {self.seed}"
        )

    def link(self) -> Link:
        """Return the link with its losses."""
        from aquila.sim.link import Link

        return Link(uplink_loss=self.loss_rate)

    def save(self, folder: Path, method: str) -> None:
        """Write down in the run's folder what was run, and on what."""
        import torch

        folder.mkdir(parents=True, exist_ok=True)
        facts = {
            "method": method,
            "task": "digits",
            **asdict(self),
            "aquila": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
        }
        (folder / SETTINGS).write_text(json.dumps(facts, indent=2) + "\n")


_OPTIONS = (
    click.option("--devices", default=10, show_default=True, help="Number of devices, M."),
    click.option(
        "--classes-per-device", default=2, show_default=True, help="Digits a device has seen."
    ),
    click.option(
        "--rounds", type=click.IntRange(min=1), default=200, show_default=True, help="Rounds, K."
    ),
    click.option("--seed", default=0, show_default=True, help="Seed of data, model and methods."),
    click.option(
        "--alpha", default=0.5, show_default=True, help="Step size of methods not given their own."
    ),
    click.option(
        "--work",
        type=click.Choice(["gradient", "epochs"]),
        default="gradient",
        show_default=True,
        help="One gradient a round, or local epochs.",
    ),
    click.option(
        "--batch-size",
        type=click.IntRange(min=1),
        help="Samples in a minibatch; default: all of a device's.",
    ),
    click.option(
        "--epochs",
        type=click.IntRange(min=1),
        default=5,
        show_default=True,
        help="Local epochs a round, for methods that train locally.",
    ),
    click.option(
        "--loss-rate",
        type=click.FloatRange(0, 1),
        default=0.0,
        show_default=True,
        help="Share of replies lost on the way.",
    ),
    click.option(
        "--on-nan",
        type=click.Choice(["stop", "skip"]),
        default="stop",
        show_default=True,
        help="On a NaN or infinite gradient: stop the run, or let the device sit out.",
    ),
)


def setting_options(command: F) -> F:
    """Add the options of a setting to a command, which receives them as keyword arguments."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
