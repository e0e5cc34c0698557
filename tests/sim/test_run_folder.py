"""Run folders: locks, descriptions of runs from Python, other data, full disks."""

import errno
import json
import os
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

import aquila
from aquila.cli.report import write_report
from aquila.sim.run_folder import CHECKPOINT_FILE, RunFolder
from helpers.command_line import output
from helpers.problems import ridge

METHOD = aquila.create("laq", bits=5)
TINY = ridge(devices=3, dimension=8)


def make_shards(sizes=(10, 11, 12, 13), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(size, 4, generator=generator),
            torch.randint(0, 3, (size,), generator=generator),
        )
        for size in sizes
    ]


def make_problem(shards=None, **options):
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    return aquila.problem(
        model, shards or make_shards(), make_shards()[0], options=aquila.ProblemOptions(**options)
    )


def simulate(problem, rounds=4, on_record=None, method=METHOD, **options):
    return aquila.simulate(
        method, problem.theta0, problem.devices, rounds, evaluate=problem.evaluate,
        on_record=on_record, options=aquila.RunOptions(fleet=problem.fleet, **options),
    )  # fmt: skip


def facts_of(folder):
    return json.loads((folder / "run.json").read_text())


def test_run_from_python_describes_itself(tmp_path):
    simulate(make_problem(), out=tmp_path, participation=0.5)
    facts = facts_of(tmp_path)
    assert (facts["method"], facts["started_from"]) == ("laq", "Python")
    assert {"alpha": 0.1, "bits": 5}.items() <= facts["parameters"].items()
    assert (facts["rounds"], facts["seed"], facts["participation"]) == (4, 0, 0.5)
    assert (facts["dimension"], facts["devices"], facts["widths"]) == (15, 4, "1")
    owners = json.loads((tmp_path / "split.json").read_text())["device_of_sample"]
    assert [owners.count(device) for device in range(4)] == [10, 11, 12, 13]


def test_run_from_python_describes_its_local_training(tmp_path):
    training = aquila.LocalTraining(momentum=0.9, local_steps=3)
    problem = aquila.problem(nn.Linear(4, 3), make_shards(), batch_size=5, training=training)
    method = aquila.create("fedavg", alpha=0.1)
    simulate(problem, 1, method=method, out=tmp_path)
    facts = facts_of(tmp_path)
    assert (facts["batch_size"], facts["epochs"]) == (5, 1)
    assert training.to_dict().items() <= facts.items()


def test_report_of_runs_from_python_is_complete(tmp_path):
    for name in ("aquila", "laq"):
        method = aquila.create(name)
        simulate(make_problem(), 12, method=method, out=tmp_path / name, facts={"data": "digits"})
    page = write_report([tmp_path], tmp_path / "report.html").read_text()
    assert "digits, 15 parameters, 4 devices, 12 rounds, seed 0" in page
    assert "46 samples on 4 devices: 10 to 13 per device" in page
    assert "bits=6" in page
    assert "No command repeats these runs: they were started from Python" in page
    assert "solve different problems" not in page


def test_report_tells_runs_with_other_data_apart(tmp_path):
    simulate(make_problem(), out=tmp_path / "a")
    simulate(make_problem(make_shards(seed=1)), out=tmp_path / "b")
    page = write_report([tmp_path], tmp_path / "report.html").read_text()
    assert "These runs solve different problems: they differ in data_digest" in page


def test_widths_and_partition_are_described(tmp_path):
    wide, narrow = nn.Sequential(nn.Linear(4, 8)), nn.Sequential(nn.Linear(4, 6))
    options = aquila.ProblemOptions(narrower=[narrow], groups=[0, 1, 1])
    problem = aquila.problem(wide, make_shards((2, 3, 1)), options=options)
    parts = [torch.tensor([5, 0]), [1, 2, 3], [4]]
    simulate(problem, out=tmp_path, partition=parts)
    assert facts_of(tmp_path)["widths"] == "1 x 40 parameters, 2 x 30 parameters"
    assert json.loads((tmp_path / "split.json").read_text()) == {
        "device_of_sample": [0, 1, 1, 1, 2, 0]
    }
    with pytest.raises(ValueError, match="partition has 1 parts, but there are 3 devices"):
        simulate(problem, out=tmp_path / "other", partition=[[0]])
    assert not RunFolder(tmp_path / "other").holds_run


def test_plain_functions_have_no_split(tmp_path):
    functions = [lambda theta: (1.0, theta - 1)] * 2
    aquila.simulate(METHOD, torch.zeros(3), functions, 2, options=aquila.RunOptions(out=tmp_path))
    assert facts_of(tmp_path)["data_digest"] is None
    assert not (tmp_path / "split.json").exists()


def test_resuming_with_other_data_is_refused(tmp_path):
    whole = simulate(make_problem(), 6)
    simulate(make_problem(), 4, out=tmp_path)
    changed = make_shards()
    changed[3][0][5, 2] += 1
    with pytest.raises(ValueError, match=r"cannot be resumed: device 3 has other data$"):
        simulate(make_problem(changed), 6, out=tmp_path, resume=True)
    with pytest.raises(ValueError, match=r"4 devices have other data, the first is device 0$"):
        simulate(make_problem(make_shards(seed=1)), 6, out=tmp_path, resume=True)
    five = make_problem(make_shards((10, 11, 12, 13, 14)))
    with pytest.raises(ValueError, match=r"resumed: devices 5 [^;]*$"):
        simulate(five, 6, out=tmp_path, resume=True)
    resumed = simulate(make_problem(), 6, out=tmp_path, resume=True)
    assert torch.equal(resumed.theta, whole.theta)


def test_message_names_the_changed_parameter(tmp_path):
    simulate(make_problem(), out=tmp_path)
    other = aquila.create("laq", bits=7)
    with pytest.raises(ValueError, match=r"resumed: method bits=7 \(saved: method bits=5\)$"):
        simulate(make_problem(), method=other, out=tmp_path, resume=True)


def test_second_run_in_a_folder_is_refused(tmp_path):
    """In a callback of the run, in another thread, and with resume."""
    errors = []

    def second(resume):
        with pytest.raises(ValueError, match=r"another run is using .*; wait until it ends, or"):
            simulate(TINY_PROBLEM, out=tmp_path, resume=resume)
        errors.append(resume)

    def on_record(record):
        second(True)
        thread = threading.Thread(target=second, args=(False,))
        thread.start()
        thread.join(60)

    run = simulate(TINY_PROBLEM, 2, on_record, out=tmp_path)
    assert errors == [True, False] * 2
    assert simulate(TINY_PROBLEM, 2, out=tmp_path, resume=True).records == run.records
    assert not (tmp_path / "lock").exists()


def test_caller_can_lock_a_folder_for_its_runs(tmp_path):
    folder = RunFolder(tmp_path)
    with folder.locked():
        for rounds in (2, 3):
            simulate(TINY_PROBLEM, rounds, out=tmp_path, resume=True)
        assert (tmp_path / "lock").exists()
        thread_error = []
        thread = threading.Thread(target=lambda: thread_error.append(refused(folder)))
        thread.start()
        thread.join(60)
    assert thread_error == [True]


def refused(folder):
    try:
        folder.check_free()
    except ValueError:
        return True
    return False


def test_failed_start_releases_the_folder(tmp_path):
    simulate(TINY_PROBLEM, 4, out=tmp_path)
    with pytest.raises(ValueError, match="already holds 4 rounds") as kept:
        simulate(TINY_PROBLEM, 2, out=tmp_path, resume=True)
    assert kept.traceback  # the error must not keep the lock alive
    simulate(TINY_PROBLEM, 5, out=tmp_path, resume=True)


def test_checkpoint_without_records_is_not_overwritten(tmp_path):
    simulate(TINY_PROBLEM, out=tmp_path)
    (tmp_path / "records.jsonl").unlink()
    with pytest.raises(ValueError, match="already holds a run"):
        simulate(TINY_PROBLEM, out=tmp_path)


def test_deleted_records_stop_the_run(tmp_path):
    def delete(record):
        (tmp_path / "records.jsonl").unlink()

    with pytest.raises(FileNotFoundError, match=r"records\.jsonl"):
        simulate(TINY_PROBLEM, on_record=delete, out=tmp_path)


@pytest.mark.parametrize("name", ["records.jsonl", CHECKPOINT_FILE])
def test_full_disk_names_the_file_and_damages_nothing(tmp_path, monkeypatch, name):
    whole = simulate(TINY_PROBLEM, 6)
    real = os.fdopen

    def full(descriptor, *arguments, **options):
        file = real(descriptor, *arguments, **options)
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith((name, f"{name}.tmp")):
            file = FullDisk(file)
        return file

    def fill_disk(record):
        if record.round == 3:
            monkeypatch.setattr(os, "fdopen", full)

    with pytest.raises(OSError, match=rf"No space left on device: '.*{name}'"):
        simulate(TINY_PROBLEM, 6, fill_disk, out=tmp_path, checkpoint_every=2)
    monkeypatch.undo()
    assert (tmp_path / "records.jsonl").read_bytes().endswith(b"\n")
    assert not list(tmp_path.glob("*.tmp"))
    resumed = simulate(TINY_PROBLEM, 6, out=tmp_path, resume=True)
    assert resumed.records == whole.records


class FullDisk:
    """A file that takes ten bytes and then has no space left."""

    def __init__(self, file):
        self.file, self.taken = file, False

    def write(self, content):
        if self.taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.taken = True
        return self.file.write(bytes(content)[:10])

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()


def test_folders_that_cannot_be_used_give_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match="file is a file, not a folder"):
            simulate(TINY_PROBLEM, out=out)
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ValueError, match="link is a file, not a folder"):
        simulate(TINY_PROBLEM, out=tmp_path / "link")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(ValueError, match=f"{tmp_path} is not writable"):
        simulate(TINY_PROBLEM, out=tmp_path / "new")


def test_moved_folder_can_be_resumed_and_gets_its_run_file_again(tmp_path):
    simulate(TINY_PROBLEM, 2, out=tmp_path / "old")
    (tmp_path / "old" / "run.json").unlink()
    (tmp_path / "old").rename(tmp_path / "new")
    simulate(TINY_PROBLEM, 3, out=tmp_path / "new", resume=True)
    assert facts_of(tmp_path / "new")["rounds"] == 3
    assert "3 rounds" in output("archive", str(tmp_path / "new"), str(tmp_path / "kept"))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"out": ""}, "out must be the path of a folder, not ''"),
        ({"resume": "yes"}, "resume must be True or False, not 'yes'"),
        ({"facts": 3}, "facts must be entries of run.json by name, not 3"),
    ],
)
def test_invalid_options_are_errors(arguments, error):
    with pytest.raises(ValueError, match=error):
        aquila.RunOptions(**arguments)


@pytest.mark.parametrize(
    "metrics", [0.5, None, [0.5], {"a": "1"}, {"a": None}, {"a": torch.zeros(2)}, {1: 0.5}]
)
def test_evaluate_must_return_numbers_by_name(metrics):
    with pytest.raises(TypeError, match="evaluate must return numbers by name, such as"):
        aquila.simulate(METHOD, torch.zeros(8), TINY.devices, 1, evaluate=lambda theta: metrics)


def test_on_record_must_be_a_function():
    with pytest.raises(
        TypeError, match="on_record must be a function of a record or a list of them, not 3"
    ):
        simulate(TINY_PROBLEM, on_record=3)


TINY_PROBLEM = make_problem()
