"""MLflow's own client reads what was logged to a database file."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from aquila.report.trackers import round_metrics
from aquila.sim.records import read_records
from helpers.command_line import error_line, output

if find_spec("mlflow") is None or find_spec("sqlalchemy") is None:
    pytest.skip("needs the extra: pip install -e '.[mlflow]'", allow_module_level=True)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # raised by MLflow's drivers
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return f"sqlite:///{tmp_path / 'runs.db'}"


def client_of(uri: str) -> Any:
    from mlflow.tracking import MlflowClient  # takes a second

    return MlflowClient(uri, uri)


def runs(uri: str, experiment: str = "aquila") -> list[Any]:
    client = client_of(uri)
    return list(client.search_runs([client.get_experiment_by_name(experiment).experiment_id]))


def history(uri: str, run: Any, name: str) -> list[tuple[int, float]]:
    metrics = client_of(uri).get_metric_history(run.info.run_id, name)
    return sorted((metric.step, metric.value) for metric in metrics)


def assert_holds(uri: str, run: Any, folder: Path) -> None:
    """Assert that every value of every record was logged exactly once."""
    expected: dict[str, list[tuple[int, float]]] = {}
    sent = 0
    for record in read_records(folder):
        sent += record.uplink_bytes
        for name, value in round_metrics(record, sent).items():
            expected.setdefault(name, []).append((record.round, value))
    assert set(run.data.metrics) == set(expected)
    assert {name: history(uri, run, name) for name in expected} == expected


def test_logged_run_equals_its_records(tmp_path, uri):
    arguments = ("-m", "aquila:b_min=2", "--out", str(tmp_path / "run"), "--mlflow", uri)
    text = output("run", *arguments, "--rounds", "3")
    assert "mlflow" not in text.lower()
    (run,) = runs(uri)
    assert (run.info.run_name, run.info.status) == ("aquila_b_min=2", "FINISHED")
    assert run.data.params["method.b_min"] == "2"
    assert run.data.params["data"] == "digits"
    assert_holds(uri, run, tmp_path / "run")

    output("run", *arguments, "--rounds", "5", "--resume")
    (run,) = runs(uri)
    assert run.info.status == "FINISHED"
    assert run.data.tags["rounds"] == "5"
    assert_holds(uri, run, tmp_path / "run")


def test_rounds_run_without_tracker_are_logged_later(tmp_path, uri):
    arguments = ("run", "-m", "laq", "--out", str(tmp_path / "run"))
    output(*arguments, "--rounds", "2")
    output(*arguments, "--rounds", "4", "--resume", "--mlflow", uri)
    (run,) = runs(uri)
    assert_holds(uri, run, tmp_path / "run")


def test_methods_of_a_comparison_share_one_experiment(tmp_path, uri, monkeypatch):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    output(
        "compare", "-m", "fedsgd:alpha=1e9", "-m", "qsgd", "--rounds", "5",
        "--out", str(tmp_path / "runs"), "--mlflow", uri,
    )  # fmt: skip
    status = {run.info.run_name: run.info.status for run in runs(uri, "mine")}
    assert status == {"fedsgd_alpha=1e9": "KILLED", "qsgd": "FINISHED"}


def test_unusable_uri_gives_one_error_sentence(tmp_path, uri):
    (tmp_path / "text.db").write_text("a text file, long enough not to be an empty database" * 30)
    for address, problem in (
        (f"sqlite:///{tmp_path}/none/runs.db", "unable to open database file"),
        (f"sqlite:///{tmp_path}/text.db", "file is not a database"),
        ("carrier://pigeon", "unsupported URI"),
    ):
        message = error_line("run", "--rounds", "2", "--mlflow", address)
        assert f"MLflow cannot use {address}" in message
        assert problem in message
