"""Processes of a federation on this machine: start, wait for, find and stop them."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
STOP_SECONDS = 10.0
QUOTED_LINES = 15
"""Last lines of a log that an error message quotes."""
FEDERATION_VARIABLE = "AQUILA_FEDERATION"
"""Environment variable whose random value marks the processes of one deployment."""


class FederationError(RuntimeError):
    """A process of the deployment did not start, exited unexpectedly, or took too long."""


@dataclass
class Process:
    """A process in a separate process group, whose output goes to a log file."""

    name: str
    handle: "subprocess.Popen[bytes]"
    log: Path

    @property
    def exited(self) -> bool:
        """Whether the process has exited."""
        return self.handle.poll() is not None

    def signal(self, number: int) -> None:
        """Send a signal to the process group."""
        send_signal(os.killpg, self.handle.pid, number)

    def stop(self) -> None:
        """Terminate the process group; kill it after `STOP_SECONDS`."""
        self.signal(signal.SIGTERM)
        try:
            with suppress(subprocess.TimeoutExpired):
                self.handle.wait(STOP_SECONDS)
        finally:
            self.signal(signal.SIGKILL)
            self.handle.wait()

    def last_lines(self) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-QUOTED_LINES:])


def start_process(
    name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Process:
    """Start a command whose output is appended to NAME.log in the folder."""
    path = folder / f"{name}.log"
    with path.open("ab") as log:
        handle = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(environment),
            start_new_session=True,
        )  # fmt: skip
    return Process(name, handle, path)


def wait_until(condition: Callable[[], bool], process: Process, seconds: float) -> None:
    """Wait for a condition. FederationError if the process exits first, or after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        if process.exited and not condition():
            raise FederationError(f"{process.name} exited unexpectedly:\n{process.last_lines()}")
        if time.monotonic() >= end:
            raise FederationError(
                f"{process.name} was not ready after {seconds:g} s:\n{process.last_lines()}"
            )
        time.sleep(0.1)


def leftover_processes(name: str) -> list[int]:
    """Return the ids of all processes that have the deployment's name in their environment.

    Flower starts some processes in new sessions, which signals to a process group do not reach.
    """
    marker = f"\0{FEDERATION_VARIABLE}={name}\0".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if marker in b"\0" + (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def send_signal(send: Callable[[int, int], None], target: int, number: int) -> None:
    """Send a signal, unless the process is gone."""
    with suppress(ProcessLookupError):
        send(target, number)


def is_listening(port: int) -> bool:
    """Return whether a program listens on a port of the loopback interface."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
