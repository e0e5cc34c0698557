"""A complete Flower deployment on this machine: one SuperLink and several SuperNodes on loopback.

It is for tests and demonstrations. Connections are neither encrypted nor authenticated.
"""

import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aquila.flower import local_processes
from aquila.flower.death_notice import NOTICES_VARIABLE
from aquila.flower.local_processes import (
    FEDERATION_VARIABLE,
    HOST,
    FederationError,
    Process,
    free_port,
    is_listening,
    leftover_processes,
    send_signal,
    start_process,
    wait_until,
)

CONNECTION = "loopback"
START_SECONDS = 60.0
HOST_START_SECONDS = 5.0
"""How long each device of a device host may take to start."""

OFFLINE_SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""Settings that stop Flower and Ray from installing packages and from calling other machines."""


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

    def start_device_host(self, devices: int) -> None:
        """Start the SuperNodes of all devices in one device host, and wait until they listen."""
        command = [sys.executable, "-m", "aquila.flower.device_host", "--devices", str(devices)]
        command += ["--", "--insecure", "--superlink", f"{HOST}:{self.port}"]
        host = start_process("device-host", command, self.folder, self.environment)
        self.processes["device-host"] = host
        started = f"{devices} devices are running"
        seconds = START_SECONDS + devices * HOST_START_SECONDS
        wait_until(lambda: started in host.log.read_text(errors="replace"), host, seconds)

    def _start(self, name: str, command: Sequence[str], port: int) -> None:
        process = start_process(name, command, self.folder, self.environment)
        self.processes[name] = process
        wait_until(lambda: is_listening(port), process, START_SECONDS)

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
        end = time.monotonic() + local_processes.STOP_SECONDS
        name = self.environment[FEDERATION_VARIABLE]
        while (leftover := leftover_processes(name)) and time.monotonic() < end:
            for process_id in leftover:
                send_signal(os.kill, process_id, signal.SIGKILL)
            time.sleep(0.1)


@contextmanager
def federation(devices: int, folder: Path, *, shared_host: bool = False) -> Iterator[Federation]:
    """Start a SuperLink and one SuperNode per device, and stop all of them on exit.

    In the main thread, SIGTERM, SIGHUP and Ctrl-C also stop them. With `shared_host`, the
    SuperNodes share one device host, which needs far less memory and time per device.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    running = Federation(folder, port, _environment(folder, port))
    with _handle_signals(_exit_on_signal):
        try:
            running.start_superlink()
            if shared_host:
                running.start_device_host(devices)
            for device in range(0 if shared_host else devices):
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
