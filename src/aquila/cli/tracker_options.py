"""Options that log a run to experiment trackers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aquila.cli.named_path import NamedPath

if TYPE_CHECKING:
    from aquila.report.trackers import Tracker


@dataclass(frozen=True)
class TrackerOptions:
    """Where to log a run: a TensorBoard folder and the address of MLflow, or None."""

    tensorboard: Path | None
    mlflow: str | None

    def connect(self) -> list[Tracker]:
        """Return the chosen trackers; ValueError if one is not installed or not reachable."""
        from aquila.report.trackers import make_trackers

        return make_trackers(self.tensorboard, self.mlflow)


def tracker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add one option per tracker. The command gets them as the argument `trackers`."""

    @wraps(command)
    def with_trackers(tensorboard: Path | None, mlflow: str | None, **others: Any) -> None:
        command(trackers=TrackerOptions(tensorboard, mlflow), **others)

    add_tensorboard = click.option(
        "--tensorboard",
        metavar="FOLDER",
        type=NamedPath(path_type=Path),
        help="Also log every round to this TensorBoard folder.",
    )
    add_mlflow = click.option(
        "--mlflow",
        metavar="URI",
        help="Also log every round to MLflow: sqlite:///mlflow.db, or the address of a server.",
    )
    return add_tensorboard(add_mlflow(with_trackers))
