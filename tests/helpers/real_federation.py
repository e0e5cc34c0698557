"""A federation from `aquila deploy init` whose processes run on this machine."""

import os
import secrets
import socket
import ssl
import sys
import time
from pathlib import Path

import httpx

import aquila
from aquila.flower.local_processes import (
    FEDERATION_VARIABLE,
    Process,
    leftover_processes,
    start_process,
    wait_until,
)

SECONDS = 180.0
ACTIVATED = "SuperNode ID:"
"""What a SuperNode prints when the server has accepted it."""


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


def installed_environment(folder: Path) -> dict[str, str]:
    """Return the environment of an installation: all programs are on the PATH."""
    programs = folder / "bin"
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
        name, end = self.environment[FEDERATION_VARIABLE], time.monotonic() + 120
        while (leftover := leftover_processes(name)) and time.monotonic() < end:
            time.sleep(0.1)
        return leftover


def wait_for_output(process: Process, text: str) -> None:
    """Wait until a process has printed a text."""
    wait_until(lambda: text in process.log.read_text(errors="replace"), process, SECONDS)


def tls_context(folder: Path) -> ssl.SSLContext:
    """Return a TLS context that trusts only the authority of a federation."""
    return ssl.create_default_context(cafile=folder / "server" / "ca.crt")


def serve(processes: ProcessGroup, folder: Path, port: int, tls: bool) -> Process:
    """Start the server of a federation, and wait until its SuperLink and proxy answer."""
    server = processes.start("server", folder / "server" / "start.sh")
    scheme = f"http{'s' if tls else ''}://127.0.0.1"
    verify = tls_context(folder) if tls else True

    def answers() -> bool:
        try:
            health = httpx.get(f"{scheme}:{port + 1}/health", verify=verify)
            httpx.post(f"{scheme}:{port}/v1/fleet/pull-messages", verify=verify)
            return health.status_code == 200
        except httpx.HTTPError:
            return False

    wait_until(answers, server, SECONDS)
    return server
