"""Logs runs to MLflow, in a database file or on a server."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from aquila.report.trackers import TrackedRun
from aquila.runtime.install_hint import install_hint

EXPERIMENT = "aquila"
RUN_ID_FILE = "mlflow.json"
"""File in a run folder that stores the MLflow run id."""

ENVIRONMENT_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""By default, MLflow retries an unreachable server for minutes and prints URLs."""


class Mlflow:
    """The runs at a tracking URI, in the experiment MLFLOW_EXPERIMENT_NAME or `aquila`."""

    title = "MLflow"

    def __init__(self, uri: str) -> None:
        for name, value in ENVIRONMENT_DEFAULTS.items():
            os.environ.setdefault(name, value)
        try:
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise ValueError(f"--mlflow needs MLflow: {install_hint('mlflow')}") from error
        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it reports every table it creates
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        self._uri = uri
        try:
            with _as_oserror(uri):
                _check_database_file(uri)
                self._client: Any = MlflowClient(tracking_uri=uri, registry_uri=uri)
                found = self._client.get_experiment_by_name(name)
                self._experiment = (
                    found.experiment_id if found else self._client.create_experiment(name)
                )
        except OSError as error:
            raise ValueError(str(error)) from error

    def reserve_name(self, name: str, overwrite: bool) -> None:
        """Accept any name: MLflow allows several runs with one name."""

    def open(self, run: TrackedRun, resume: bool) -> MlflowRun:
        """Start the log of a run, or continue it."""
        with _as_oserror(self._uri):
            run_id = self._stored_run_id(run.folder) if resume else None
            if run_id is None:
                run_id = self._create_run(run)
            else:
                self._resume_run(run_id, run.facts)
        return MlflowRun(self._client, self._uri, run_id)

    def _create_run(self, run: TrackedRun) -> str:
        from mlflow.entities import Param

        run_id = str(self._client.create_run(self._experiment, run_name=run.name).info.run_id)
        parameters = [Param(name, str(v)) for name, v in run.facts.items() if v != ""]
        self._client.log_batch(run_id, params=parameters)
        if run.folder is not None:
            note = {"uri": self._uri, "run": run_id}
            (run.folder / RUN_ID_FILE).write_text(json.dumps(note) + "\n")
        return run_id

    def _stored_run_id(self, folder: Path | None) -> str | None:
        """Return the id of the run that an earlier command started for the same folder."""
        if folder is None or not (folder / RUN_ID_FILE).exists():
            return None
        note: dict[str, str] = json.loads((folder / RUN_ID_FILE).read_text())
        return note.get("run") if note.get("uri") == self._uri else None

    def _resume_run(self, run_id: str, facts: Mapping[str, object]) -> None:
        """Reopen a run. MLflow parameters are immutable, so changed settings become tags."""
        self._client.update_run(run_id, status="RUNNING")
        logged = self._client.get_run(run_id).data.params
        for name, value in facts.items():
            if value != "" and logged.get(name) != str(value):
                self._client.set_tag(run_id, name, str(value))


class MlflowRun:
    """One run in MLflow. Metrics cannot be deleted, so a logged round is not logged again."""

    def __init__(self, client: Any, uri: str, run_id: str) -> None:
        self._client, self._uri, self._run_id = client, uri, run_id
        with _as_oserror(uri):
            history = client.get_metric_history(run_id, "uplink_bytes")
        self._logged_rounds = {metric.step for metric in history}

    def known_rounds(self, rounds: int) -> int:
        """Return how many of the first rounds are already logged."""
        return next((n for n in range(rounds) if n not in self._logged_rounds), rounds)

    def log(self, round_number: int, values: Mapping[str, float]) -> None:
        """Log the metrics of a round."""
        from mlflow.entities import Metric

        if round_number in self._logged_rounds:
            return
        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, round_number) for name, value in values.items()]
        with _as_oserror(self._uri):
            self._client.log_batch(self._run_id, metrics=metrics)

    def close(self, finished: bool) -> None:
        """Mark the run as finished, or as stopped early."""
        with _as_oserror(self._uri):
            self._client.set_terminated(self._run_id, "FINISHED" if finished else "KILLED")


def _check_database_file(uri: str) -> None:
    """Raise if a database file is unusable; MLflow itself would retry for two minutes."""
    if uri.startswith("sqlite:///"):
        with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database:
            database.execute("PRAGMA schema_version")


@contextmanager
def _as_oserror(uri: str) -> Iterator[None]:
    """Turn any error of MLflow or its database drivers into OSError."""
    try:
        yield
    except Exception as error:
        message = str(error).strip().partition("\n")[0]
        raise OSError(f"MLflow cannot use {uri}: {message}") from error
