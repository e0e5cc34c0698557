"""Reading runs from folders, and the errors for unreadable ones."""

import json
from dataclasses import replace

import pytest

from aquila.report.page import read_runs
from aquila.sim.archive import archive_contents, write_archive
from helpers.run_folders import write_comparison, write_run


def test_reads_run_folders_and_folders_of_runs(tmp_path):
    write_comparison(tmp_path / "all")
    write_run(tmp_path / "one", "laq")
    labels = [run.label for run in read_runs([tmp_path / "all", tmp_path / "one"]).runs]
    assert labels == ["aquila", "aquila b_min=2", "fedsgd", "qsgd", "laq"]


def test_folder_given_twice_is_read_once(tmp_path):
    folder = write_run(tmp_path / "one")
    assert len(read_runs([folder, folder, tmp_path]).runs) == 1


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (("a", "b"), ("a", "b")),
        (("seed0/aquila", "seed1/aquila"), ("seed0", "seed1")),
        (("x/one/run", "y/one/run"), ("{}/x/one/run", "{}/y/one/run")),
    ],
)
def test_duplicate_labels_are_made_unique_by_folder(tmp_path, folders, names):
    found = read_runs([write_run(tmp_path / folder) for folder in folders])
    assert [run.label for run in found.runs] == [
        f"aquila ({name.format(tmp_path.resolve())})" for name in names
    ]


def test_run_without_settings_is_named_after_its_folder(tmp_path):
    folder = write_run(tmp_path / "mine")
    (folder / "run.json").unlink()
    (run,) = read_runs([folder]).runs
    assert (run.label, run.facts, run.devices, run.planned_rounds) == ("mine", {}, 4, 12)


def test_empty_runs_are_skipped_and_listed(tmp_path):
    write_run(tmp_path / "full")
    write_run(tmp_path / "empty", "laq", rounds=0)
    found = read_runs([tmp_path])
    assert [run.label for run in found.runs] == ["aquila"]
    assert found.empty == [tmp_path / "empty"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "run without rounds"),
        ("nonsense\n", "is not the record of round 0"),
        (b"\xff\xfe\x00\n", "it is not text"),
    ],
)
def test_unreadable_records_are_reported(tmp_path, content, sentence):
    folder = write_run(tmp_path / "run")
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "records.jsonl").write_bytes(data)
    with pytest.raises(ValueError, match=sentence):
        read_runs([folder])


def test_folders_without_runs_are_rejected(tmp_path):
    with pytest.raises(ValueError, match="is not a folder"):
        read_runs([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match=r"holds no run: there is no records\.jsonl"):
        read_runs([tmp_path])


def test_archived_run_equals_the_original(tmp_path):
    folder = write_run(tmp_path / "one" / "run")
    write_archive(archive_contents(folder, tmp_path / "two" / "run"))
    (run,) = read_runs([tmp_path / "one"]).runs
    (archived,) = read_runs([tmp_path / "two"]).runs
    assert archived == replace(run, folder=tmp_path / "two" / "run")
    assert archived.samples_per_device == [10, 10, 10, 10]


@pytest.mark.parametrize("name", ["records.jsonl.gz", "split.json.gz"])
def test_damaged_file_of_archived_run_is_reported(tmp_path, name):
    write_archive(archive_contents(write_run(tmp_path / "run"), tmp_path / "archived"))
    path = tmp_path / "archived" / name
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=f"{name} is damaged: it is not a complete gzip file"):
        read_runs([tmp_path / "archived"])


@pytest.mark.parametrize("content", [[], {}, {"device_of_sample": 3}, {"device_of_sample": ["a"]}])
def test_invalid_splits_are_reported(tmp_path, content):
    folder = write_run(tmp_path / "run")
    (folder / "split.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"split\.json is not a valid split"):
        read_runs([folder])
