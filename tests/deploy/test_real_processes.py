"""A running federation from `aquila deploy init`: who gets access, and who does not."""

import os
import secrets
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import httpx

import aquila
from aquila.deploy.federation import create
from aquila.deploy.plan import Plan
from aquila.flower.loopback import (
    FEDERATION_VARIABLE,
    FederationError,
    Process,
    leftover_processes,
    start_process,
    wait_until,
)
from helpers.command_line import output

pytestmark = pytest.mark.deployment

SECONDS = 60.0
ACTIVATED = "SuperNode ID:"


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports."""
    for first in range(20000, 30000, count):
        try:
            for port in range(first, first + count):
                with socket.create_server(("127.0.0.1", port)):
                    pass
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


@pytest.fixture
def environment(tmp_path):
    """The environment of an installation: AQUILA's and Flower's programs are on the PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "aquila").write_text(f'#!/bin/sh\nexec {sys.executable} -m aquila "$@"\n')
    (programs / "aquila").chmod(0o700)
    path = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    source = str(Path(aquila.__file__).parents[1])
    return {
        **os.environ,
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": source,
        FEDERATION_VARIABLE: secrets.token_hex(8),
    }


class ProcessGroup:
    """Processes that are stopped at the end, including the processes they started."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.started: list[Process] = []

    def start(self, name: str, *command: object) -> Process:
        process = start_process(
            name, [str(word) for word in command], self.folder, self.environment
        )
        self.started.append(process)
        return process

    def stop(self) -> list[int]:
        """Stop all processes; return those that are still running."""
        for process in reversed(self.started):
            process.stop()
        name, end = self.environment[FEDERATION_VARIABLE], time.monotonic() + 20
        while (leftover := leftover_processes(name)) and time.monotonic() < end:
            time.sleep(0.1)
        return leftover


@pytest.fixture
def processes(tmp_path, environment):
    group = ProcessGroup(tmp_path, environment)
    yield group
    assert not group.stop()


def wait_for_output(process: Process, text: str) -> None:
    """Wait until a process has printed a text."""
    wait_until(lambda: text in process.log.read_text(errors="replace"), process, SECONDS)


def tls_context(folder: Path) -> ssl.SSLContext:
    """Return a TLS context that trusts only the authority of a federation."""
    return ssl.create_default_context(cafile=folder / "server" / "ca.crt")


def serve(processes: ProcessGroup, folder: Path, port: int, tls: bool) -> None:
    """Start the server of a federation, and wait until it accepts devices."""
    server = processes.start("server", folder / "server" / "start.sh")
    address = f"http{'s' if tls else ''}://127.0.0.1:{port}/v1/fleet/pull-messages"

    def answers() -> bool:
        try:
            reply = httpx.post(address, verify=tls_context(folder) if tls else True)
            return reply.status_code not in (403, 502)
        except httpx.HTTPError:
            return False

    wait_until(answers, server, SECONDS)


def test_only_registered_devices_get_access(tmp_path, processes):
    folder, port = tmp_path / "fed", free_ports(5)
    output("deploy", "init", str(folder), "--devices", "3", "--port", str(port))
    serve(processes, folder, port, tls=True)
    register = [folder / "server" / "register.sh", "keys/device-0.pub"]
    subprocess.run(register, env=processes.environment, check=True, timeout=SECONDS)

    registered = processes.start("registered", folder / "device-0" / "start.sh")
    unregistered = processes.start("unregistered", folder / "device-1" / "start.sh")
    script = folder / "device-2" / "start.sh"
    options = "--root-certificates ca.crt --auth-supernode-private-key device.key"
    script.write_text(script.read_text().replace(options, "--insecure"))
    unencrypted = processes.start("unencrypted", script, "--max-retries", 1)

    wait_for_output(registered, ACTIVATED)
    for refused in (unregistered, unencrypted):
        with pytest.raises(FederationError, match="exited unexpectedly"):
            wait_until(lambda: False, refused, SECONDS)
        text = refused.log.read_text()
        assert "Exit Code: 305" in text
        assert ACTIVATED not in text
        assert refused.handle.returncode == 1
    assert "Starting insecure channel" in unencrypted.log.read_text()
    assert "[code: 2004]" in unregistered.log.read_text()
    assert not registered.exited

    control = f"https://127.0.0.1:{port}/v1/control/register-node"
    assert httpx.post(control, verify=tls_context(folder)).status_code == 403


def test_insecure_federation_starts(tmp_path, processes):
    folder, port = tmp_path / "fed", free_ports(3)
    create(folder, Plan(1, port=port, insecure=True))
    serve(processes, folder, port, tls=False)
    wait_for_output(processes.start("device", folder / "device-0" / "start.sh"), ACTIVATED)
    assert httpx.post(f"http://127.0.0.1:{port}/v1/control/register-node").status_code == 403
