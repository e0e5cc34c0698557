"""Mistakes around the --out folder and other paths: one sentence, and nothing is lost."""

import builtins
import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aquila.runtime.install_hint import install_hint
from helpers.command_line import error_line, invoke, output

RUN = ("run", "-m", "laq", "--rounds", "2")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def done(tmp_path):
    """The folder of a finished run."""
    output(*RUN, "--out", str(tmp_path / "done"))
    return tmp_path / "done"


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--out", ""),
        ("compare", "--out", ""),
        ("run", "--tensorboard", ""),
        ("report", ""),
        ("archive", "runs", ""),
        ("figures", "runs", "--out", ""),
    ],
)
def test_empty_path_is_refused(arguments):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "the path is empty; the current folder is '.'" in result.output


def test_resume_and_overwrite_exclude_each_other(done):
    before = contents(done)
    message = error_line(*RUN, "--out", str(done), "--resume", "--overwrite")
    assert message.endswith("--resume continues a run and --overwrite deletes it: give only one")
    assert contents(done) == before


def test_resume_of_nothing_says_so_and_starts(tmp_path):
    text = output(*RUN, "--out", str(tmp_path / "new"), "--resume")
    assert f"no run in {tmp_path / 'new'}; starting at round 0".replace("\n", "") in "".join(
        text.splitlines()
    )
    assert "--overwrite deletes the run in a folder: name it" in error_line(*RUN, "--overwrite")


@pytest.mark.parametrize("alpha", ["-1", "0", "nan"])
def test_dirichlet_needs_a_positive_alpha(alpha):
    message = error_line("run", "--split", f"dirichlet:{alpha}")
    assert message.endswith(f"dirichlet: alpha must be > 0 and <= 1e+06, not {alpha}")


def test_data_folder_of_data_without_one_is_refused(tmp_path):
    for name in ("digits", "synthetic_cifar10"):
        message = error_line("run", "--data", name, "--data-folder", "somewhere")
        assert message.endswith(f"{name} is not read from a folder; leave out data_folder")
    file = tmp_path / "mine.toml"
    file.write_text("[setting]\ndata = 'cifar10'\ndata_folder = 'somewhere'\nmodel = 'cnn'\n")
    output("run", str(file), "-m", "laq", "--smoke")  # synthetic data replaces the folder


def test_parameter_of_a_method_is_given_once():
    message = error_line("run", "-m", "laq:bits=4,bits=5")
    assert message.endswith("'laq:bits=4,bits=5' sets bits twice")


def test_overwrite_deletes_only_once_the_problem_is_valid(done):
    before = contents(done)
    assert "no split" in error_line(*RUN, "--out", str(done), "--overwrite", "--split", "idd")
    assert contents(done) == before
    output(*RUN[:3], "--rounds", "1", "--out", str(done), "--overwrite")
    assert len((done / "records.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("command", ["run", "compare"])
def test_second_process_is_refused_at_once(command, tmp_path):
    """It gets one sentence; a killed process leaves a folder that can be resumed."""
    line = (command, "-m", "laq", "--out", str(tmp_path), "--rounds")
    records = tmp_path / ("records.jsonl" if command == "run" else "laq/records.jsonl")
    first = [sys.executable, "-m", "aquila", *line, "100000", "--checkpoint-every", "1"]
    with subprocess.Popen(first, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not (records.exists() and records.stat().st_size):
            time.sleep(0.01)
        for option in ([], ["--resume"], ["--overwrite"]):
            message = error_line(*line, "100000", *option)
            assert message.endswith(
                f"another run is using {tmp_path}; wait until it ends, or choose another folder"
            )
        output("report", str(tmp_path), "--out", str(tmp_path / "meanwhile.html"))
        process.kill()
    rounds = len(records.read_text().splitlines())
    output(*line, str(rounds + 2), "--resume")
    assert len(records.read_text().splitlines()) == rounds + 2


def test_compare_without_matplotlib_warns_and_writes_the_report(tmp_path, monkeypatch):
    real, hint = builtins.__import__, install_hint("report")

    def without(name, *arguments, **options):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    result = invoke("compare", "-m", "laq", "--rounds", "2", "--out", str(tmp_path))
    assert result.exit_code == 0
    warnings = [line for line in result.output.splitlines() if line.startswith("Warning")]
    assert warnings == [f"Warning: no figure: figures need matplotlib: {hint}"]
    assert (tmp_path / "report.html").exists()
    assert not (tmp_path / "loss_against_uplink.png").exists()


def test_system_errors_name_the_file(done, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    page = done / "report.html"
    page.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    assert error_line("report", str(done)) == f"Error: {page}: No space left on device"
    assert page.read_text() == "old"
    for name in ("new", "new/run.json"):  # the second time, the folder exists
        message = error_line(*RUN, "--out", str(done.parent / "new"))
        assert message == f"Error: {done.parent / name}: No space left on device"


@pytest.mark.parametrize("below", ["", "below"])
def test_file_in_place_of_a_folder_is_named_before_training(done, below, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    sentence = f"{file} is a file, not a folder"
    out = str(Path(file, below))
    for command in (("run",), ("run", "--resume"), ("run", "--overwrite"), ("compare",)):
        result = invoke(*command, "--out", out)
        assert result.output == f"Error: {sentence}\n"
    assert sentence in error_line("archive", str(done), out)
    assert sentence in error_line("figures", str(done), "--out", out)
    assert sentence in error_line("report", str(done), "--out", str(file / "page.html"))


def test_records_without_run_file_are_explained(done, tmp_path):
    (done / "run.json").unlink()
    for command in (("figures",), ("archive",)):
        target = [str(tmp_path / "kept")] if command == ("archive",) else []
        message = error_line(*command, str(done), *target)
        assert message.endswith(f"there is no run in {done} that has a run.json and rounds")
    output("report", str(done))
