"""Broken runs give the same errors in every reader."""

import pytest

from aquila.report.page import read_runs
from aquila.report.runs import find_runs
from helpers.run_folders import write_run

DEEP = "[" * 100_000


@pytest.fixture(params=["find_runs", "read_runs"])
def read(request):
    return find_runs if request.param == "find_runs" else lambda folder: read_runs([folder])


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "<b>"},
        {"uplink_bytes": -1},
        {"uplink_bytes": 1.5},
        {"paper_bits": "12"},
        {"metrics": {"test_accuracy": [1]}},
        {"metrics": {"test_accuracy": None}},
        {"metrics": None},
        {"levels": {0: "x"}},
        {"levels": {-1: 2}},
        {"uplink": {10**12: 2}},
        {"error_ratio": {}},
    ],
)
def test_invalid_numbers_in_records_are_reported(tmp_path, read, changes):
    folder = write_run(tmp_path / "run", rounds=1, **changes)
    with pytest.raises(ValueError, match=r"line 1, has an invalid number"):
        read(folder)


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ({"parameters": None}, "its parameters are not a JSON object"),
        ({"parameters": [1]}, "its parameters are not a JSON object"),
        ({"parameters": {"beta": None}}, "its beta is not a number"),
        ({"parameters": {"beta": "x"}}, "its beta is not a number"),
        ({"parameters": {"beta": 10**400}}, "its beta is not a number"),
        ({"method": "aquila beta=x"}, "its beta is not a number"),
        ({"seed": [1, 2]}, "its seed is not an integer"),
    ],
)
def test_invalid_settings_are_reported(tmp_path, read, facts, fault):
    folder = write_run(tmp_path / "run", rounds=1, facts=facts)
    with pytest.raises(ValueError, match=rf"run\.json is not a valid run file: {fault}"):
        read(folder)


@pytest.mark.parametrize(
    ("text", "fault"),
    [("{", "it is not JSON"), (DEEP, "it is not JSON"), ("3", "it is not a JSON object")],
    ids=["cut off", "deep", "a number"],
)
def test_run_file_that_is_not_an_object_is_reported(tmp_path, read, text, fault):
    folder = write_run(tmp_path / "run", rounds=1)
    (folder / "run.json").write_text(text)
    with pytest.raises(ValueError, match=rf"run\.json is not a valid run file: {fault}"):
        read(folder)


def test_deeply_nested_records_are_reported(tmp_path, read):
    folder = write_run(tmp_path / "run", rounds=1)
    (folder / "records.jsonl").write_text(DEEP + "\n")
    with pytest.raises(ValueError, match="line 1, is not the record of round 0"):
        read(folder)


@pytest.mark.parametrize("method", [None, "", ["laq"]])
def test_method_must_be_a_non_empty_string(tmp_path, method):
    folder = write_run(tmp_path / "run", rounds=1, facts={"method": method})
    with pytest.raises(ValueError, match="it names no method"):
        find_runs(folder)
