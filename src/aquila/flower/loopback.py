"""A whole Flower deployment on this machine: one SuperLink and some SuperNodes, on loopback only.

It serves tests and demonstrations. Connections are not encrypted and nobody is authenticated.
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

HOST = "127.0.0.1"
CONNECTION = "loopback"
START_SECONDS = 60.0
STOP_SECONDS = 10.0
QUOTED_LINES = 15
FEDERATION_VARIABLE = "AQUILA_FEDERATION"
"""Environment variable that tells the processes of one deployment from all others."""

OFFLINE_SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""Settings under which Flower installs nothing and calls nobody outside of this machine."""


class FederationError(RuntimeError):
    """A process of the deployment that did not start, ended by itself, or took too long."""


@dataclass
class Process:
    """A process with a group of its own, whose output goes to a file."""

    name: str
    handle: "subprocess.Popen[bytes]"
    log: Path

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self.handle.poll() is not None

    def signal(self, number: int) -> None:
        """Send a signal to the process and all it has started."""
        _signal(os.killpg, self.handle.pid, number)

    def stop(self) -> None:
        """End the process and all it has started, by force if it takes too long."""
        self.signal(signal.SIGTERM)
        try:
            with suppress(subprocess.TimeoutExpired):
                self.handle.wait(STOP_SECONDS)
        finally:
            self.signal(signal.SIGKILL)
            self.handle.wait()

    def last_lines(self) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-QUOTED_LINES:])


@dataclass
class Federation:
    """A running deployment; files of its processes are in `folder`."""

    folder: Path
    port: int
    environment: Mapping[str, str]
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def superlink(self) -> Process:
        """The server of Flower."""
        return self.processes["superlink"]

    def node(self, device: int) -> Process:
        """Return the SuperNode of a device."""
        return self.processes[f"supernode-{device}"]

    def start_superlink(self) -> None:
        """Start, or start again, the SuperLink; it knows the nodes that it knew before."""
        command = (
            f"flower-superlink --insecure --host {HOST} --port {self.port} "
            "--disable-runtime-dependency-installation --database"
        )
        database = str(self.folder / "superlink.db")
        self._start("superlink", [*command.split(), database], self.port)

    def start_node(self, device: int) -> None:
        """Start, or start again, the SuperNode of a device and wait until it is up."""
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
        """Run a Flower app to its end, within so many seconds; return what it printed.

        `on_output`, if given, is called with every piece of that as it comes.
        """
        pairs = " ".join(f"{name}={_toml(value)}" for name, value in config.items())
        command = ["flwr", "run", str(app), CONNECTION, "--stream"]
        name = f"run-{len(list(self.folder.glob('run-*.log')))}"
        run = start_process(name, [*command, *(["-c", pairs] if pairs else [])], self.folder,
                    self.environment)  # fmt: skip
        printed = ""

        def output_is_complete() -> bool:
            nonlocal printed
            ended = run.ended  # asked first, so that nothing is missed
            text = run.log.read_text(errors="replace")
            if on_output is not None:
                on_output(text[len(printed) :])
            printed = text
            return ended

        try:
            wait_until(output_is_complete, run, seconds)
        finally:
            run.stop()
        return printed

    def stop(self) -> None:
        """Stop every process, the nodes first."""
        processes = list(reversed(self.processes.values()))
        for process in processes:
            process.signal(signal.SIGTERM)
        for process in processes:
            process.stop()
        end = time.monotonic() + STOP_SECONDS
        while (
            left := leftover_processes(self.environment[FEDERATION_VARIABLE])
        ) and time.monotonic() < end:
            for number in left:
                _signal(os.kill, number, signal.SIGKILL)
            time.sleep(0.1)


@contextmanager
def federation(devices: int, folder: Path) -> Iterator[Federation]:
    """Start a SuperLink and a SuperNode a device; stop all of them at the end, whatever happens.

    SIGTERM, SIGHUP and Ctrl-C end it like any exception, if this is the main thread.
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
            with _handle_signals(signal.SIG_IGN):  # nobody interrupts the stopping
                running.stop()


@contextmanager
def _handle_signals(handler: Any) -> Iterator[None]:
    """Answer the signals that ask a program to end in this way, where they can be answered."""
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
    """End the program by an exception, so that all it has started is stopped."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def start_process(
    name: str, command: Sequence[str], folder: Path, env: Mapping[str, str]
) -> Process:
    """Start a command that writes to NAME.log in the folder, after what is there already."""
    path = folder / f"{name}.log"
    with path.open("ab") as log:
        handle = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(env),
            start_new_session=True,
        )  # fmt: skip
    return Process(name, handle, path)


def wait_until(condition: Callable[[], bool], process: Process, seconds: float) -> None:
    """Wait for a condition; FederationError if the process ends before, or time runs out."""
    end = time.monotonic() + seconds
    while not condition():
        if process.ended and not condition():
            raise FederationError(f"{process.name} ended by itself:\n{process.last_lines()}")
        if time.monotonic() >= end:
            raise FederationError(
                f"{process.name} was not ready after {seconds:g} s:\n{process.last_lines()}"
            )
        time.sleep(0.1)


def leftover_processes(name: str) -> list[int]:
    """Return the processes of a deployment, known by its random name in their environment.

    Flower starts some of them in sessions of their own, where no signal to a group finds them.
    """
    marker = f"\0{FEDERATION_VARIABLE}={name}\0".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if marker in b"\0" + (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def free_port() -> int:
    """Return a port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def _signal(send: Callable[[int, int], None], target: int, number: int) -> None:
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
    return {**os.environ, **OFFLINE_SETTINGS, **own, FEDERATION_VARIABLE: secrets.token_hex(8)}


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else f'"{value}"'
