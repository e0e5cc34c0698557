"""Options that log a run to experiment trackers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aquila.cli.named_path import NamedPath

if TYPE_CHECKING:
    from aquila.report.trackers import Tracker

F = TypeVar("F", bound=Callable[..., Any])


def tracker_options(command: F) -> F:
    """Add one option per tracker."""
    tensorboard = click.option(
        "--tensorboard",
        metavar="FOLDER",
        type=NamedPath(path_type=Path),
        help="Also log every round to this TensorBoard folder.",
    )
    mlflow = click.option(
        "--mlflow",
        metavar="URI",
        help="Also log every round to MLflow: sqlite:///mlflow.db, or the address of a server.",
    )
    return tensorboard(mlflow(command))


def make_trackers(tensorboard: Path | None, mlflow: str | None) -> list[Tracker]:
    """Return the chosen trackers; ValueError if one is not installed or not reachable."""
    trackers: list[Tracker] = []
    if tensorboard is not None:
        from aquila.report.trackers.tensorboard import TensorBoard

        trackers.append(TensorBoard(tensorboard))
    if mlflow is not None:
        from aquila.report.trackers.mlflow import Mlflow

        trackers.append(Mlflow(mlflow))
    return trackers
