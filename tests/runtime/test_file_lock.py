"""One process at a time holds a lock, and a killed process frees it."""

import errno
import fcntl
import subprocess
import sys
import threading

import pytest

from aquila.runtime.file_lock import file_lock

HOLDER = """
import fcntl, sys, time
with open(sys.argv[1], "ab") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(60)
"""


def test_second_process_waits_and_says_so(tmp_path):
    lock, order, waits = tmp_path / "lock", [], threading.Event()

    def lock_second():
        with file_lock(lock, "the run", 20, on_wait):
            order.append("second")

    def on_wait(message):
        order.append(message)
        waits.set()

    with file_lock(lock, "the run"):
        second = threading.Thread(target=lock_second)
        second.start()
        assert waits.wait(120)
        order.append("first")
    second.join(20)
    assert order == ["another process is using the run; waiting for it", "first", "second"]


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


def test_killed_process_releases_lock(tmp_path):
    lock = tmp_path / "lock"
    command = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TimeoutError), file_lock(lock, "the run"):
            pass
        holder.kill()
        holder.wait(120)
        with file_lock(lock, "the run", 5, on_wait=pytest.fail):
            pass


def test_lock_file_is_deleted_afterwards(tmp_path):
    with file_lock(tmp_path / "lock", "the run"):
        assert (tmp_path / "lock").exists()
    assert not list(tmp_path.iterdir())


def test_a_lock_file_that_was_just_deleted_is_not_taken(tmp_path, monkeypatch):
    lock, real = tmp_path / "lock", fcntl.flock

    def delete_first(file, operation):
        monkeypatch.setattr(fcntl, "flock", real)
        lock.unlink()
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", delete_first)
    with (
        file_lock(lock, "the run"),
        pytest.raises(TimeoutError),
        file_lock(lock, "the run"),
    ):
        pass


def test_file_system_without_locks_is_usable(tmp_path, monkeypatch):
    def fail(file, operation):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", fail)
    with file_lock(tmp_path / "lock", "the run"):
        assert (tmp_path / "lock").exists()
