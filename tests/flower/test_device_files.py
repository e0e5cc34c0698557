"""Device states on disk: one file per run and device, nothing outside their folder."""

import os
import time

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch
from local_grid import local_grid

import aquila
import aquila.flower
from aquila.core.packet import WireError
from aquila.flower.device_files import RETENTION_SECONDS, answer_from_disk
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import as_shard

METHOD = aquila.create("aquila")
RUN = "0123456789abcdef"


def session():
    shard = as_shard(lambda theta: (1.0, theta - 1))
    return DeviceSession(METHOD, 2, shard, torch.zeros(4), seed=0)


def order():
    server = ServerSession(METHOD, torch.zeros(4), aquila.Fleet.uniform(4, 3), seed=0)
    return server.open_round()[2]


def test_new_process_answers_same_order_with_same_frame(tmp_path):
    first = answer_from_disk(session(), order(), tmp_path, RUN)
    assert (tmp_path / RUN / "device-2.state").stat().st_mode & 0o077 == 0
    assert answer_from_disk(session(), order(), tmp_path, RUN) == first


def test_damaged_state_restarts_device(tmp_path, log):
    answer_from_disk(session(), order(), tmp_path, RUN)
    (tmp_path / RUN / "device-2.state").write_bytes(b"AQST and nothing else")
    assert answer_from_disk(session(), order(), tmp_path, RUN)
    assert "device 2 restarts from its initial state: " in log.text


@pytest.mark.parametrize("run", ["", "../../etc", "0123456789ABCDEF", RUN + "/x", "a" * 17])
def test_invalid_run_name_is_refused(run, tmp_path):
    with pytest.raises(WireError, match="is not a valid run name"):
        answer_from_disk(session(), order(), tmp_path / "states", run)
    assert not (tmp_path / "states").exists()


def test_old_runs_are_deleted(tmp_path):
    for run, age in (("a" * 16, RETENTION_SECONDS + 60), ("b" * 16, RETENTION_SECONDS - 3600)):
        answer_from_disk(session(), order(), tmp_path, run)
        then = time.time() - age
        for path in (tmp_path / run / "device-2.state", tmp_path / run):
            os.utime(path, (then, then))
    (tmp_path / "notes").mkdir()
    os.utime(tmp_path / "notes", (0, 0))
    answer_from_disk(session(), order(), tmp_path, RUN)
    assert {path.name for path in tmp_path.iterdir()} == {"b" * 16, RUN, "notes"}


def test_data_is_loaded_once_per_process():
    made = []

    def make_device(device, context):
        made.append(device)
        return lambda theta: (1.0, theta - 1)

    grid = local_grid(aquila.flower.client_app(METHOD, make_device), 3)
    aquila.flower.strategy(METHOD, torch.zeros(4), devices=3, rounds=4).start(grid)
    assert sorted(made) == [0, 1, 2]


def test_two_runs_with_same_settings_share_no_state():
    grid = local_grid(
        aquila.flower.client_app(METHOD, lambda d, c: lambda theta: (1.0, theta - 1)), 3
    )
    run = aquila.flower.strategy(METHOD, torch.zeros(4), devices=3, rounds=4)
    first, second = run.start(grid), run.start(grid)
    assert first.records == second.records
    assert torch.equal(first.theta, second.theta)
