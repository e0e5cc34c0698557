"""Runs of the simulator keep earlier checkpoints and can be rolled back to them."""

import os

import pytest
import torch

import aquila
from aquila.runtime.checkpoints import EarlierCheckpoints
from aquila.sim.records import read_records
from aquila.sim.rollback import roll_back, saved_rounds, start_over
from helpers.command_line import error_line, output
from helpers.problems import ridge

PROBLEM = ridge(devices=3, dimension=8)
METHOD = aquila.create("laq", bits=5)


def simulate(rounds, **options):
    return aquila.simulate(
        METHOD, torch.zeros(8), PROBLEM.devices, rounds,
        evaluate=lambda theta: {"accuracy": float(theta[0])},
        options=aquila.RunOptions(**{"checkpoint_every": 2, **options}),
    )  # fmt: skip


def test_rolled_back_run_ends_with_the_same_bits(tmp_path):
    whole = simulate(11, out=tmp_path)
    assert saved_rounds(tmp_path).current == 11
    assert saved_rounds(tmp_path).earlier == (6, 8, 10)
    roll_back(tmp_path, 6)
    assert read_records(tmp_path) == whole.records[:6]
    assert (saved_rounds(tmp_path).current, saved_rounds(tmp_path).earlier) == (6, ())
    assert not (tmp_path / "model.safetensors").exists()
    again = simulate(11, out=tmp_path, resume=True)
    assert again.records == whole.records
    assert torch.equal(again.theta, whole.theta)
    assert saved_rounds(tmp_path).earlier == (6, 8, 10)


def test_number_of_checkpoints_can_be_chosen(tmp_path):
    simulate(6, out=tmp_path, keep_checkpoints=0)
    assert not (tmp_path / "checkpoints").exists()
    simulate(12, out=tmp_path, keep_checkpoints=1, resume=True)
    assert saved_rounds(tmp_path).earlier == (10,)


def test_checkpoints_of_a_folder_without_records_are_not_overwritten(tmp_path):
    simulate(4, out=tmp_path)
    for name in ("checkpoint.npz", "records.jsonl"):
        (tmp_path / name).unlink()
    with pytest.raises(ValueError, match="already holds a run"):
        simulate(4, out=tmp_path)
    start_over(tmp_path)
    simulate(4, out=tmp_path)


def test_checkpoints_are_copied_where_the_disk_has_no_links(tmp_path, monkeypatch):
    def unsupported(*arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", unsupported)
    whole = simulate(5, out=tmp_path)
    assert saved_rounds(tmp_path).earlier == (2, 4)
    roll_back(tmp_path, 2)
    assert simulate(5, out=tmp_path, resume=True).records == whole.records


def test_checkpoint_is_restored_over_another_name_of_itself(tmp_path):
    current = tmp_path / "server.state"
    current.write_bytes(b"state")
    earlier = EarlierCheckpoints(current)
    for _ in range(2):
        earlier.add_current(5)
        earlier.restore(5)
    assert {path.name for path in tmp_path.iterdir()} == {"server.state", "checkpoints"}
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["round-5.state"]


def test_command_lists_and_rolls_back(tmp_path):
    folder = str(tmp_path)
    simulate(7, out=tmp_path)
    assert "continues at 7; earlier checkpoints: 2, 4, 6" in output("checkpoints", folder)
    assert "no checkpoint of round 5" in error_line("checkpoints", folder, "--rollback", "5")
    assert "continues at round 4" in output("checkpoints", folder, "--rollback", "4")
    assert "continues at 4; earlier checkpoints: 2" in output("checkpoints", folder)
    assert "there is no folder" in error_line("checkpoints", str(tmp_path / "none"))
