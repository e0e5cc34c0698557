"""Processes of a deployment: started within a time limit, and always stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import aquila
from aquila.flower.local_processes import (
    FEDERATION_VARIABLE,
    FederationError,
    leftover_processes,
    start_process,
    wait_until,
)
from aquila.flower.loopback import Federation, federation


def has_ended(name: str) -> bool:
    """Whether no process of that name runs any more, after a short wait."""
    end = time.monotonic() + 60
    while leftover_processes(name) and time.monotonic() < end:
        time.sleep(0.05)
    return not leftover_processes(name)


def test_log_of_exited_process_is_quoted(tmp_path):
    process = start_process(
        "part", [sys.executable, "-c", "print('out of disk')"], tmp_path, os.environ
    )
    with pytest.raises(FederationError, match="part exited unexpectedly:\nout of disk"):
        wait_until(lambda: False, process, 60)


def test_slow_process_is_stopped(tmp_path):
    env = {**os.environ, FEDERATION_VARIABLE: tmp_path.name}
    process = start_process("part", ["sh", "-c", "sleep 600 & sleep 600"], tmp_path, env)
    with pytest.raises(FederationError, match="part was not ready after 1 s"):
        wait_until(lambda: False, process, 1)
    process.stop()
    assert process.exited
    assert has_ended(tmp_path.name)


def test_leftover_processes_are_found_by_name(tmp_path):
    env = {**os.environ, FEDERATION_VARIABLE: tmp_path.name}
    process = start_process("part", ["sleep", "600"], tmp_path, env)
    try:
        wait_until(lambda: leftover_processes(tmp_path.name) == [process.handle.pid], process, 60)
    finally:
        process.stop()
    assert has_ended(tmp_path.name)


HOLDER = """
import sys, time
from pathlib import Path
import aquila.flower.local_processes
from aquila.flower.local_processes import (FEDERATION_VARIABLE, start_process, wait_until)
from aquila.flower.loopback import (Federation, federation)
aquila.flower.local_processes.STOP_SECONDS = 1.5
def stubborn(self):
    command = ["sh", "-c", "trap '' TERM; echo ready; sleep 600 & sleep 600"]
    process = start_process("superlink", command, self.folder, self.environment)
    self.processes["superlink"] = process
    wait_until(lambda: "ready" in process.last_lines(), process, 60)  # it ignores SIGTERM now
Federation.start_superlink = stubborn
with federation(0, Path(sys.argv[1])) as running:
    print(running.environment[FEDERATION_VARIABLE], flush=True)
    time.sleep(60)
"""


def test_sigterm_stops_all_processes(tmp_path):
    source = str(Path(aquila.__file__).parents[1])
    command = [sys.executable, "-W", "ignore", "-c", HOLDER, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": source}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as holder:
        assert holder.stdout is not None
        name = holder.stdout.readline().strip()
        assert leftover_processes(name)
        holder.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        holder.send_signal(signal.SIGTERM)  # a second signal must not interrupt the clean-up
        assert holder.wait(120) == 128 + signal.SIGTERM
    assert has_ended(name)


def test_keyboard_interrupt_stops_all_processes(tmp_path, monkeypatch):
    names: list[str] = []

    def in_two_sessions(self):
        command = ["sh", "-c", "setsid sleep 600 & sleep 600"]
        self.processes["superlink"] = start_process("link", command, tmp_path, self.environment)

    monkeypatch.setattr(Federation, "start_superlink", in_two_sessions)

    def interrupted():
        with federation(0, tmp_path) as running:
            names.append(running.environment[FEDERATION_VARIABLE])
            wait_until(lambda: len(leftover_processes(names[0])) == 3, running.superlink, 20)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not leftover_processes(names[0])


def test_signal_handlers_are_restored(tmp_path, monkeypatch):
    monkeypatch.setattr(Federation, "start_superlink", lambda self: None)
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]

    def ended():
        with federation(0, tmp_path):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    with pytest.raises(SystemExit) as leaving:
        ended()
    assert leaving.value.code == 128 + signal.SIGTERM
    after = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]
    assert after == before
