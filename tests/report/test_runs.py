"""What is said of broken runs: the same, whoever reads them."""

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
def test_what_is_no_number_is_not_taken_for_one(tmp_path, read, changes):
    folder = write_run(tmp_path / "run", rounds=1, **changes)
    with pytest.raises(ValueError, match=r"line 1, has something that is no number"):
        read(folder)


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ({"parameters": None}, "its parameters are no names with values"),
        ({"parameters": [1]}, "its parameters are no names with values"),
        ({"parameters": {"beta": None}}, "its beta is no number"),
        ({"parameters": {"beta": "x"}}, "its beta is no number"),
        ({"parameters": {"beta": 10**400}}, "its beta is no number"),
        ({"method": "aquila beta=x"}, "its beta is no number"),
        ({"seed": [1, 2]}, "its seed is no whole number"),
    ],
)
def test_settings_that_cannot_be_are_named(tmp_path, read, facts, fault):
    folder = write_run(tmp_path / "run", rounds=1, facts=facts)
    with pytest.raises(ValueError, match=rf"run\.json does not tell what was run: {fault}"):
        read(folder)


@pytest.mark.parametrize(
    ("text", "fault"),
    [("{", "it is not JSON"), (DEEP, "it is not JSON"), ("3", "it holds no settings")],
    ids=["cut off", "deep", "a number"],
)
def test_settings_that_are_none_are_named(tmp_path, read, text, fault):
    folder = write_run(tmp_path / "run", rounds=1)
    (folder / "run.json").write_text(text)
    with pytest.raises(ValueError, match=rf"run\.json does not tell what was run: {fault}"):
        read(folder)


def test_records_without_an_end_are_named(tmp_path, read):
    folder = write_run(tmp_path / "run", rounds=1)
    (folder / "records.jsonl").write_text(DEEP + "\n")
    with pytest.raises(ValueError, match="line 1, is not the record of round 0"):
        read(folder)


@pytest.mark.parametrize("method", [None, "", ["laq"]])
def test_a_method_is_named_by_a_text(tmp_path, method):
    folder = write_run(tmp_path / "run", rounds=1, facts={"method": method})
    with pytest.raises(ValueError, match="it names no method"):
        find_runs(folder)
