"""A complete Flower deployment on this machine: one SuperLink and several SuperNodes on loopback.

It is for tests and demonstrations. Connections are neither encrypted nor authenticated.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aquila.flower.death_notice import NOTICES_VARIABLE

HOST = "127.0.0.1"
CONNECTION = "loopback"
START_SECONDS = 60.0
STOP_SECONDS = 10.0
QUOTED_LINES = 15
"""Last lines of a log that an error message quotes."""
FEDERATION_VARIABLE = "AQUILA_FEDERATION"
"""Environment variable whose random value marks the processes of one deployment."""

OFFLINE_SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""Settings that stop Flower and Ray from installing packages and from calling other machines."""


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
        _send_signal(os.killpg, self.handle.pid, number)

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


@dataclass
class Federation:
    """A running deployment, whose processes keep their files in `folder`."""

    folder: Path
    port: int
    environment: Mapping[str, str]
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def superlink(self) -> Process:
        """The process of Flower's server."""
        return self.processes["superlink"]

    def node(self, device: int) -> Process:
        """Return the SuperNode of a device."""
        return self.processes[f"supernode-{device}"]

    def start_superlink(self) -> None:
        """Start or restart the SuperLink. Its database keeps the known nodes."""
        command = (
            f"flower-superlink --insecure --host {HOST} --port {self.port} "
            "--disable-runtime-dependency-installation --database"
        )
        database = str(self.folder / "superlink.db")
        self._start("superlink", [*command.split(), database], self.port)

    def start_node(self, device: int) -> None:
        """Start or restart the SuperNode of a device, and wait until it listens."""
        port = free_port()
        command = (
            f"flower-supernode --insecure --superlink {HOST}:{self.port} --host {HOST} "
            f"--port {port} --node-config partition-id={device}"
        )
        self._start(f"supernode-{device}", command.split(), port)

    def _start(self, name: str, command: Sequence[str], port: int) -> None:
        process = start_process(name, command, self.folder, self.environment)
        self.processes[name] = process
        wait_until(lambda: _is_listening(port), process, START_SECONDS)

    def run(
        self,
        app: Path,
        config: Mapping[str, object],
        seconds: float,
        on_output: Callable[[str], None] | None = None,
    ) -> str:
        """Run a Flower app to its end, and return what it printed.

        Args:
            app: Folder of the Flower app.
            config: Values that override the app's run configuration.
            seconds: Time limit. FederationError if the app takes longer.
            on_output: Called with every new piece of output, if given.
        """
        pairs = " ".join(f"{name}={_toml(value)}" for name, value in config.items())
        command = ["flwr", "run", str(app), CONNECTION, "--stream"]
        command += ["-c", pairs] if pairs else []
        name = f"run-{len(list(self.folder.glob('run-*.log')))}"
        run = start_process(name, command, self.folder, self.environment)
        printed = ""
        notices = Path(self.environment[NOTICES_VARIABLE])
        notices.write_text("")

        def output_is_complete() -> bool:
            nonlocal printed
            exited = run.exited  # read before the log, so that no output is missed
            if text := notices.read_text():
                raise FederationError(text.strip())
            text = run.log.read_text(errors="replace")
            if on_output is not None:
                on_output(text[len(printed) :])
            printed = text
            return exited

        try:
            wait_until(output_is_complete, run, seconds)
        finally:
            run.stop()
        return printed

    def stop(self) -> None:
        """Stop all processes, the SuperNodes first."""
        processes = list(reversed(self.processes.values()))
        for process in processes:
            process.signal(signal.SIGTERM)
        for process in processes:
            process.stop()
        end = time.monotonic() + STOP_SECONDS
        name = self.environment[FEDERATION_VARIABLE]
        while (leftover := leftover_processes(name)) and time.monotonic() < end:
            for process_id in leftover:
                _send_signal(os.kill, process_id, signal.SIGKILL)
            time.sleep(0.1)


@contextmanager
def federation(devices: int, folder: Path) -> Iterator[Federation]:
    """Start a SuperLink and one SuperNode per device, and stop all of them on exit.

    In the main thread, SIGTERM, SIGHUP and Ctrl-C also stop them.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    running = Federation(folder, port, _environment(folder, port))
    with _handle_signals(_exit_on_signal):
        try:
            running.start_superlink()
            for device in range(devices):
                running.start_node(device)
            yield running
        finally:
            with _handle_signals(signal.SIG_IGN):  # a second Ctrl-C must not leave processes
                running.stop()


@contextmanager
def _handle_signals(handler: Any) -> Iterator[None]:
    """Use the handler for termination signals. Only the main thread can set handlers."""
    signals = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
    if threading.current_thread() is not threading.main_thread():
        signals = []
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _exit_on_signal(number: int, _: object) -> None:
    """Raise an exception, so that the processes are stopped before the program exits."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


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


def _send_signal(send: Callable[[int, int], None], target: int, number: int) -> None:
    with suppress(ProcessLookupError):
        send(target, number)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def _environment(folder: Path, port: int) -> dict[str, str]:
    home = folder.absolute() / "flwr"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
        f'address = "{HOST}:{port}"\ninsecure = true\n'
    )
    programs = str(Path(sys.executable).parent)  # Flower starts its processes by name
    path = os.pathsep.join([programs, os.environ.get("PATH", "")])
    own = {"FLWR_HOME": str(home), "XDG_STATE_HOME": str(home.parent / "state"), "PATH": path}
    own[NOTICES_VARIABLE] = str(home.parent / "notices")
    return {**os.environ, **OFFLINE_SETTINGS, **own, FEDERATION_VARIABLE: secrets.token_hex(8)}


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else f'"{value}"'
