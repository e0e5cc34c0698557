"""Options that log a run to experiment trackers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from aquila.cli.named_path import NamedPath

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
