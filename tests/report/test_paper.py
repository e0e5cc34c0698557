"""The paper's numbers agree with the comments in the experiment files."""

import re
from pathlib import Path

import pytest

from aquila.methods import METHODS
from aquila.report.paper import TABLES, PaperRow, paper_rows
from aquila.report.runs import find_runs
from aquila.sim.experiment import read_experiment
from helpers.fake_records import fake_record, write_fake_run

EXPERIMENTS = Path(__file__).parent.parent.parent / "experiments"
NAMES = {
    "QSGD": "qsgd", "AdaQuantFL": "adaquantfl", "LAQ": "laq", "LAdaQ": "ladaq",
    "LENA": "lena_tables", "MARINA": "marina", "AQUILA": "aquila",
}  # fmt: skip
ROWS = [row for table in TABLES for row in paper_rows(table)]
(CIFAR10,) = [row for row in ROWS if row.table == 2 and row.title == "CIFAR-10, IID"]


def file_of(row: PaperRow) -> Path:
    split = row.title.partition(", ")[2].lower().replace("-", "_")
    return EXPERIMENTS / f"table{row.table}" / f"{row.data}_{split}.toml"


def test_all_rows_exist():
    assert [len(paper_rows(table)) for table in TABLES] == [8, 5]
    assert all(name in METHODS for row in ROWS for name in row.printed)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.table} {row.title}")
def test_numbers_and_settings_match_the_experiment_file(row):
    file = file_of(row)
    comments = " ".join(re.findall(r"^# (.*)$", file.read_text(), re.MULTILINE))
    printed = {
        NAMES[name]: [float(quality), float(gib)]
        for name, quality, gib in re.findall(
            rf"\b({'|'.join(NAMES)}) (\d+\.?\d*) / (\d+\.?\d*\d)", comments
        )
    }
    assert printed == row.printed
    experiment = read_experiment(file, {})
    for name in ("data", "model", "split", "widths", "devices", "rounds", "batch_size"):
        assert getattr(row, name) == getattr(experiment.setting, name)
    assert experiment.methods["aquila"]["beta"] == row.beta


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.table} {row.title}")
def test_run_of_experiment_file_matches_only_its_row(row, tmp_path):
    setting = read_experiment(file_of(row), {}).setting
    write_fake_run(tmp_path / "any name", "laq", [fake_record(0)], **setting.to_dict())
    (run,) = find_runs(tmp_path)
    assert [other for other in ROWS if other.matches(run)] == [row]
    assert row.differences(run) == []


@pytest.mark.parametrize(
    "change",
    [
        {"data": "synthetic_cifar10"}, {"model": "cnn"}, {"split": "dirichlet:0.5"},
        {"devices": 20}, {"widths": "1,0.25"}, {"widths": None}, {"samples": 500},
        {"uplink_loss": 0.1}, {"participation": 0.5}, {"test_samples": 10}, {"downlink_error": 0.5},
        {"augment": True}, {"momentum": 0.9}, {"schedule": "cosine"}, {"server_optimizer": "adam"},
        {"weights": "samples"},
    ],
)  # fmt: skip
def test_run_with_another_setting_matches_no_row(change, tmp_path):
    write_fake_run(tmp_path / "run", "laq", [fake_record(0)], **change)
    assert not any(row.matches(run) for row in ROWS for run in find_runs(tmp_path))


def test_differences_are_listed(tmp_path):
    write_fake_run(
        tmp_path / "run", "laq", [fake_record(0)], batch_size=250, work="gradient", widths="1.0"
    )
    (run,) = find_runs(tmp_path)
    assert CIFAR10.matches(run)
    assert CIFAR10.differences(run) == ["work gradient, not epochs", "batch_size 250, not 256"]


@pytest.mark.parametrize(
    ("label", "parameters", "shown"),
    [
        ("aquila beta=0.1", {"beta": 0.1}, "aquila"),
        ("aquila beta=0.1", {"beta": "0.1"}, "aquila"),
        ("aquila beta=0.10 b_min=2", {}, "aquila b_min=2"),
        ("mine beta=0.15", {"beta": "any"}, "mine beta=0.15"),
        ("aquila beta=0.5", {"beta": 0.5}, None),
        ("aquila beta=0.15", {}, None),
    ],
)
def test_run_with_another_beta_matches_no_row(tmp_path, label, parameters, shown):
    write_fake_run(tmp_path / "run", label, [fake_record(0)], parameters=parameters)
    (run,) = find_runs(tmp_path)
    assert CIFAR10.matches(run) == (shown is not None)
    assert CIFAR10.label(run) == (shown or label)
