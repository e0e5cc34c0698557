"""Two processes of one device or server: the second waits; a killed process frees the lock."""

import subprocess
import sys
import threading

import pytest

pytest.importorskip("flwr", reason="not installed: pip install 'aquila-fl[flower]'")
import torch
from local_grid import local_grid

import aquila
import aquila.flower
import aquila.flower.device_files
import aquila.flower.server
from aquila.core.fleet import Fleet
from aquila.flower.device_files import answer_from_disk
from aquila.flower.file_lock import file_lock
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import as_shard

METHOD = aquila.create("aquila")
RUN = "0123456789abcdef"
HOLDER = """
import fcntl, sys, time
with open(sys.argv[1], "ab") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(60)
"""


def test_second_process_waits_and_logs_it(tmp_path, log):
    lock, order = tmp_path / "lock", []
    with file_lock(lock, "the state of device 2", 1):
        second = threading.Thread(target=lock_second, args=(lock, order))
        second.start()
        while "another process is using the state of device 2; waiting for it" not in log.text:
            assert second.is_alive()
        order.append("first")
    second.join(20)
    assert order == ["first", "second"]


def lock_second(lock, order):
    with file_lock(lock, "the state of device 2", 20):
        order.append("second")


def test_waiting_times_out(tmp_path):
    lock = tmp_path / "lock"
    message = (
        r"another process is still using the run after 0.1 s; stop the process that holds .*lock"
    )
    with (
        file_lock(lock, "the run", 1),
        pytest.raises(TimeoutError, match=message),
        file_lock(lock, "the run", 0.1),
    ):
        pass


def test_killed_process_releases_lock(tmp_path, log):
    lock = tmp_path / "lock"
    command = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TimeoutError), file_lock(lock, "the state of device 2", 0.1):
            pass
        log.clear()
        holder.kill()
        holder.wait(20)
        with file_lock(lock, "the state of device 2", 5):
            assert log.text == ""


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
