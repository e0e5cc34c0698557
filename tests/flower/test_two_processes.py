"""Two processes of one device or server: the second waits."""

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch
from local_grid import local_grid

import aquila
import aquila.flower
import aquila.flower.device_files
import aquila.flower.server
from aquila.core.fleet import Fleet
from aquila.flower.device_files import answer_from_disk
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import as_shard

METHOD = aquila.create("aquila")
RUN = "0123456789abcdef"


def test_second_process_of_device_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(aquila.flower.device_files, "LOCK_WAIT_SECONDS", 0.1)
    server = ServerSession(METHOD, torch.zeros(4), Fleet.uniform(4, 3), seed=0)
    order = server.open_round()[2]
    second = DeviceSession(METHOD, 2, as_shard(lambda t: (1.0, t - 1)), torch.zeros(4), seed=0)

    def meanwhile(theta):
        with pytest.raises(TimeoutError, match="still using the state of device 2"):
            answer_from_disk(second, order, tmp_path, RUN)
        return 1.0, theta - 1

    first = DeviceSession(METHOD, 2, as_shard(meanwhile), torch.zeros(4), seed=0)
    frame = answer_from_disk(first, order, tmp_path, RUN)
    assert answer_from_disk(second, order, tmp_path, RUN) == frame


def test_second_server_in_folder_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(aquila.flower.server, "LOCK_WAIT_SECONDS", 0.1)
    app = aquila.flower.client_app(METHOD, lambda device, context: lambda t: (1.0, t - 1))
    options = aquila.RunOptions(out=tmp_path)
    run = aquila.flower.strategy(METHOD, torch.zeros(4), devices=3, rounds=2, options=options)

    def meanwhile(record):
        with pytest.raises(TimeoutError, match="still using the run in"):
            run.start(local_grid(app, 3))

    assert len(run.start(local_grid(app, 3), on_record=meanwhile).records) == 2
