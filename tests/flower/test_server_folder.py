"""The folder of a server: earlier checkpoints, rollback, missing files, and bounded space."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch
from local_grid import local_grid

import aquila
import aquila.flower
from aquila import RunOptions
from aquila.flower import Deployment
from aquila.flower.run_folder import ServerRunFolder
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.persist import read_server_positions
from aquila.runtime.server_session import ServerSession
from aquila.runtime.traffic import Traffic
from aquila.sim.oracle import as_shard
from aquila.sim.records import RoundOutcome, make_record, read_records, write_records
from aquila.sim.rollback import roll_back, saved_rounds, start_over
from faults.consistency import assert_consistent
from helpers.command_line import error_line, output
from helpers.problems import ridge

PROBLEM = ridge(devices=3, dimension=30)
METHOD = aquila.create("laq", alpha=0.5 / PROBLEM.smoothness())
THETA = torch.zeros(30)


@pytest.fixture
def start(tmp_path):
    """Return a function that runs to a round, and resumes the run that the folder holds."""
    app = aquila.flower.client_app(
        METHOD, lambda device, context: PROBLEM.devices[device], state_folder=tmp_path / "devices"
    )

    def run(rounds, on_record=None, **options):
        options = {"out": tmp_path / "run", "checkpoint_every": 3, **options}
        deployment = Deployment(deadline_seconds=2.0, wait_seconds=2.0)
        strategy = aquila.flower.strategy(
            METHOD, THETA, 3, rounds, options=RunOptions(**options), deployment=deployment
        )
        return strategy.start(local_grid(app, 3), on_record)

    return run


def check(tmp_path):
    assert_consistent(tmp_path / "run", tmp_path / "devices", METHOD, THETA, 3)


def lose_device_state(tmp_path, device=0):
    name = json.loads((tmp_path / "run" / "run.json").read_text())["run"]
    (tmp_path / "devices" / name / f"device-{device}.state").unlink()


def parts_on_disk(tmp_path):
    return {path.name for path in (tmp_path / "run" / "archive").iterdir()}


def test_checkpoints_rotate(start, tmp_path):
    start(17)
    saved = saved_rounds(tmp_path / "run")
    assert (saved.current, saved.earlier) == (17, (9, 12, 15))
    start(18, keep_checkpoints=1)
    saved = saved_rounds(tmp_path / "run")
    assert (saved.current, saved.earlier) == (18, (15,))


@pytest.mark.parametrize("target", [6, 9])
def test_run_continues_from_an_earlier_checkpoint(start, tmp_path, target):
    whole = start(12)
    roll_back(tmp_path / "run", target)
    assert read_records(tmp_path / "run") == whole.records[:target]
    again = start(12)
    assert [record.round for record in again.records] == list(range(12))
    check(tmp_path)
    lose_device_state(tmp_path, 1)
    start(14)
    check(tmp_path)
    assert saved_rounds(tmp_path / "run").current == 14


def test_run_can_be_rolled_back_again_and_again(start, tmp_path):
    start(10)
    for _ in range(3):
        roll_back(tmp_path / "run", 6)
        lose_device_state(tmp_path)
        start(10)
        check(tmp_path)


def test_rollback_names_what_is_allowed_and_changes_nothing(start, tmp_path):
    start(7)
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir() if p.is_file()}
    with pytest.raises(ValueError, match=r"no checkpoint of round 5; it has those of rounds: 0, 3"):
        roll_back(tmp_path / "run", 5)
    path = tmp_path / "run" / "checkpoints" / "round-3.state"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"round-3\.state cannot be used: the saved session is"):
        roll_back(tmp_path / "run", 3)
    with pytest.raises(ValueError, match="there is no folder"):
        roll_back(tmp_path / "none", 3)
    with pytest.raises(ValueError, match="has no checkpoint of a run"):
        roll_back(tmp_path, 3)
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir() if p.is_file()} == before


def test_damaged_earlier_checkpoint_is_reported_and_the_run_continues(start, tmp_path, log):
    start(7)
    (tmp_path / "run" / "checkpoints" / "round-3.state").write_bytes(b"AQST")
    start(8)
    assert "the run cannot be rolled back to round 3: the file is not a saved session" in log.text


def test_running_server_cannot_be_rolled_back(start, tmp_path):
    errors = []

    def on_record(record):
        if record.round == 4:
            with pytest.raises(ValueError, match="another run is using"):
                roll_back(tmp_path / "run", 3)
            with pytest.raises(ValueError, match="another run is using"):
                start_over(tmp_path / "run")
            errors.append(record.round)

    start(6, on_record)
    assert errors == [4]


def test_archive_keeps_what_the_checkpoints_need_and_nothing_else(start, tmp_path):
    for rounds in range(1, 14, 2):
        start(rounds)
        lose_device_state(tmp_path)
    folder = tmp_path / "run"
    states = [folder / "server.state", *(folder / "checkpoints").iterdir()]
    needed = {
        f"{device}-{position.part}.frames"
        for state in states
        for device, position in enumerate(read_server_positions(state))
        if position.part >= 0
    }
    assert parts_on_disk(tmp_path) == needed
    assert 3 < len(needed) <= 3 * 4


LOSSES = {
    "server.state": "holds attempts.json, records.jsonl, archive, checkpoints of a run, but not "
    "its server.state; restore it from a backup",
    "run.json": "holds server.state, attempts.json, records.jsonl, archive, checkpoints of a run, "
    "but not its run.json",
}


@pytest.mark.parametrize("name", LOSSES)
def test_lost_file_is_refused_and_nothing_is_deleted(start, tmp_path, name):
    start(4)
    (tmp_path / "run" / name).unlink()
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    with pytest.raises(ValueError, match=re.escape(LOSSES[name])):
        start(5)
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("lost", ["records.jsonl", "archive", "checkpoints", "attempts.json"])
def test_each_trace_alone_is_enough_to_refuse(start, tmp_path, lost):
    """Everything but one trace is gone."""
    start(4)
    for path in (tmp_path / "run").iterdir():
        if path.name not in (lost, "run.json"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(ValueError, match=f"holds {lost} of a run, but not its server.state"):
        start(5)


def test_lost_samples_are_refused(tmp_path):
    folder = ServerRunFolder(tmp_path, "settings")
    assert folder.load_samples() == []
    folder.save_samples([1, 2])
    folder.checkpoint.write_bytes(b"")
    assert folder.load_samples() == [1, 2]
    (tmp_path / "samples.json").unlink()
    with pytest.raises(ValueError, match=r"samples\.json is missing, without which the weights"):
        folder.load_samples()


def test_operator_decides_what_happens_to_a_run_without_its_state(start, tmp_path):
    folder = tmp_path / "run"
    start(5)
    (folder / "server.state").unlink()
    assert "no current checkpoint; earlier checkpoints: 0, 3" in output("checkpoints", str(folder))
    assert "continues at round 3" in output("checkpoints", str(folder), "--rollback", "3")
    start(5)
    check(tmp_path)
    (folder / "server.state").unlink()
    (folder / "notes.txt").write_text("of the operator")
    assert "starts at round 0" in output("checkpoints", str(folder), "--start-over")
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert len(start(2).records) == 2
    both = ("--start-over", "--rollback", "0")
    assert "give only one" in error_line("checkpoints", str(folder), *both)


def test_incomplete_archive_is_said_at_the_start(start, tmp_path, log):
    start(3)
    (tmp_path / "run" / "archive" / "1-0.frames").unlink()
    start(4)
    assert "is incomplete for devices 1; restore it together with server.state" in log.text
    log.clear()
    lose_device_state(tmp_path, 1)
    start(6)
    assert "device 1 restarts from its initial state, but the archive of its" in log.text


def test_new_folder_needs_nothing(tmp_path):
    assert not ServerRunFolder(tmp_path, "settings").is_resumed
    assert ServerRunFolder(tmp_path, "settings").is_resumed


def test_folder_of_an_old_release_is_converted(tmp_path):
    """The folder continues, and a device may restart afterwards."""
    old = Path(__file__).parents[1] / "golden" / "state_version_2"
    method, fleet = aquila.create("aquila", alpha=0.1), aquila.Fleet.uniform(6, 2)
    folder = ServerRunFolder(tmp_path, "settings")
    shutil.copy(old / "server.state", tmp_path)
    shutil.copytree(old / "archive", tmp_path / "archive", dirs_exist_ok=True)
    record = make_record(0, RoundOutcome.of(Traffic(), {}, 0), {}, fleet, {})
    write_records(tmp_path, [replace(record, round=number) for number in range(3)])
    session = ServerSession(method, torch.zeros(6), fleet, seed=0, archive=folder.archive)
    assert len(folder.resume(session)) == 3
    target = as_shard(lambda theta: (1.0, theta - 1))
    for m, order in session.open_round().items():  # both devices have lost their states
        session.receive(m, DeviceSession(method, m, target, torch.zeros(6), seed=0).handle(order))
    session.close_round()
    folder.save_round(replace(record, round=3), session)
    assert [p.part for p in read_server_positions(folder.checkpoint)] == [1, 1]
    names = {path.name for path in (tmp_path / "archive").iterdir()}
    assert names == {"0.frames", "1.frames", "0-1.frames", "1-1.frames"}


INVALID = (
    "[" * 100_000, "[Infinity, 1]", "Infinity", "1e400", "[1e400, 1]", "-3", "[-3, 2]", "[0, 0]",
    "2.7", "true", '"7"', "null", "{}", "",
)  # fmt: skip
VALID = {"samples.json": "[3, 4]", "privacy.json": "7", "attempts.json": "[2, 1]"}
"""Small files of a folder, by name. That of attempts may be lost."""


@pytest.mark.parametrize("name", [*VALID, "run.json"])
def test_only_value_errors_escape_for_damaged_small_files(tmp_path, name):
    folder = ServerRunFolder(tmp_path, "settings")
    read = {
        "samples.json": folder.load_samples,
        "privacy.json": lambda: folder.count_release(3),
        "attempts.json": lambda: folder.begin_round(2),
        "run.json": lambda: ServerRunFolder(tmp_path, "settings"),
    }[name]
    if name != "run.json":
        (tmp_path / name).write_text(VALID[name])
    read()
    for content in INVALID:
        (tmp_path / name).write_text(content)
        if name == "attempts.json":
            assert read() == 1
        else:
            with pytest.raises(ValueError, match=rf"{name} does not (hold|describe)"):
                read()


def test_privacy_counts_at_least_the_closed_rounds(tmp_path):
    folder = ServerRunFolder(tmp_path, "settings")
    assert [folder.count_release(closed) for closed in (1, 2)] == [1, 2]
    (tmp_path / "privacy.json").write_text("1")  # of an old backup
    assert folder.count_release(9) == 9
    assert folder.count_release(4) == 10
