"""The options that let other programs follow a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from aquila.report.trackers import Tracker

F = TypeVar("F", bound=Callable[..., Any])


def tracker_options(command: F) -> F:
    """Add an option for each tracker."""
    tensorboard = click.option(
        "--tensorboard",
        metavar="FOLDER",
        type=click.Path(path_type=Path),
        help="Log every round to this folder of TensorBoard's, too.",
    )
    mlflow = click.option(
        "--mlflow",
        metavar="URI",
        help="Log every round to MLflow, too: sqlite:///mlflow.db, or a server's address.",
    )
    return tensorboard(mlflow(command))


def make_trackers(tensorboard: Path | None, mlflow: str | None) -> list[Tracker]:
    """Return the trackers asked for; ValueError if one is not installed or cannot be reached."""
    trackers: list[Tracker] = []
    if tensorboard is not None:
        from aquila.report.trackers.tensorboard import TensorBoard

        trackers.append(TensorBoard(tensorboard))
    if mlflow is not None:
        from aquila.report.trackers.mlflow import Mlflow

        trackers.append(Mlflow(mlflow))
    return trackers
