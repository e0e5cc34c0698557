"""Many devices on one machine: SuperNodes and client apps that share what they import.

python -m aquila.flower.device_host --devices 50 -- --insecure --superlink 127.0.0.1:9092

Flower runs two Python processes per SuperNode and starts one more per message. Each of them imports
Flower, and the last one torch. A device host imports everything once. It forks one process per
SuperNode and one per message, and takes new messages only while a slot is free.
"""

import argparse
import gc
import os
import secrets
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from logging import getLogger
from pathlib import Path
from threading import Thread
from typing import NoReturn

import flwr.supernode.main  # noqa: F401  the web application that a SuperNode imports late
import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import (
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.cli import flower_supernode, flwr_clientapp

from aquila.core.fleet import DeviceId
from aquila.flower.local_processes import HOST, STOP_SECONDS, free_port, is_listening, send_signal
from aquila.flower.signing import IDENTITY_VARIABLE

POLL_SECONDS = 1.0
"""How often the host asks a SuperNode for a message. Flower's own processes ask as often."""

RESTART_SECONDS = 5.0
"""How long the host waits before it starts a SuperNode again, or asks it again after an error."""

STEP_SECONDS = 0.02
PARENT_SECONDS = 0.5
"""How often a forked process looks whether the host is still there."""

DEVICE_FIELD = "{device}"
"""Text in options and in the identity folder that is replaced by the device number."""

OWN_OPTIONS = ("--node-config", "--isolation", "--host", "--port", "--superexec-auth-secret-file")
"""Options of a SuperNode that the host sets itself."""

ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
LOG = getLogger("flwr.aquila")


@dataclass
class HostedNode:
    """A SuperNode and the process that computes for it, by their process ids; 0: not running."""

    device: DeviceId
    port: int = 0
    process: int = 0
    app: int = 0
    next_time: float = 0.0
    client: RuntimeHttpClient | None = field(default=None, repr=False)


class DeviceHost:
    """Runs the SuperNodes of many devices, and their client apps.

    Args:
        devices: The device numbers.
        options: Options of `flower-supernode`. `{device}` stands for the device number.
        slots: Client apps that compute at the same time.
    """

    def __init__(self, devices: Iterable[DeviceId], options: list[str], slots: int) -> None:
        self.nodes = [HostedNode(device) for device in devices]
        self._options = options
        self._slots = slots
        self._secret = secrets.token_bytes(32)
        self._secret_file: Path | None = None

    def run(self) -> NoReturn:
        """Run until a signal ends the process, and stop all nodes then."""
        gc.collect()
        gc.freeze()  # the collector must not touch pages that forked processes share
        announced = False
        with tempfile.TemporaryDirectory(prefix="aquila-") as folder:
            self._secret_file = Path(folder) / "secret"
            self._secret_file.touch(mode=0o600)
            self._secret_file.write_bytes(self._secret)
            try:
                while True:
                    self.step()
                    if not announced and all(is_listening(node.port) for node in self.nodes):
                        print(f"{len(self.nodes)} devices are running", flush=True)
                        announced = True
                    time.sleep(STEP_SECONDS)
            finally:
                self.stop()

    def step(self) -> None:
        """Start what has to run, and note what has ended."""
        self._reap()
        for node in self.nodes:
            if time.monotonic() < node.next_time:
                continue
            if not node.process:
                self._start_node(node)
            elif not node.app and sum(bool(other.app) for other in self.nodes) < self._slots:
                self._start_app(node)

    def stop(self) -> None:
        """Stop all processes, and kill those that do not stop in time."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        running = [p for node in self.nodes for p in (node.app, node.process) if p]
        for process in running:
            send_signal(os.kill, process, signal.SIGTERM)
        end = time.monotonic() + STOP_SECONDS
        while running and time.monotonic() < end:
            ended = _ended_processes()
            running = [process for process in running if process not in ended]
            time.sleep(0.1)
        for process in running:
            send_signal(os.kill, process, signal.SIGKILL)

    def _reap(self) -> None:
        ended = _ended_processes()
        for node in self.nodes:
            if node.app in ended:
                node.app = 0
            if node.process in ended:
                LOG.warning(
                    "the SuperNode of device %d ended with status %d; it starts again in %g s",
                    node.device, ended[node.process], RESTART_SECONDS,
                )  # fmt: skip
                node.process, node.next_time = 0, time.monotonic() + RESTART_SECONDS

    def _start_node(self, node: HostedNode) -> None:
        node.port = free_port()
        node.client = self._client(node.port)
        node.next_time = time.monotonic() + POLL_SECONDS
        own = f"--isolation process --host {HOST} --port {node.port} --superexec-auth-secret-file"
        arguments = [*own.split(), str(self._secret_file)]
        arguments += ["--node-config", f"partition-id={node.device}"]
        arguments += [option.replace(DEVICE_FIELD, str(node.device)) for option in self._options]
        node.process = fork(f"node-{node.device}", flower_supernode, arguments, node.device)

    def _start_app(self, node: HostedNode) -> None:
        """Start a client app if a message waits at the SuperNode."""
        node.next_time = time.monotonic() + POLL_SECONDS
        if token := self._acquire(node):
            address = f"{HOST}:{node.port}"
            arguments = ["--insecure", "--runtime-api-address", address, "--token", token]
            node.app = fork(f"app-{node.device}", flwr_clientapp, arguments, node.device)

    def _acquire(self, node: HostedNode) -> str:
        """Return the token of a waiting message, or an empty text."""
        if node.client is None:
            return ""
        try:
            request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
            return str(node.client.AcquireTask(request).token)
        except httpx.HTTPStatusError as error:
            LOG.warning("the SuperNode of device %d refuses its host: %s", node.device, error)
        except httpx.TransportError as error:  # it has not started yet, or it is ending
            LOG.debug("the SuperNode of device %d does not answer: %s", node.device, error)
        node.next_time = time.monotonic() + RESTART_SECONDS
        return ""

    def _client(self, port: int) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            f"{HOST}:{port}", True, None,
            [
                RuntimeVersionHttpInterceptor(component_name="SuperExec"),
                SuperExecAuthHttpInterceptor(
                    master_secret=self._secret, protected_methods=frozenset({ACQUIRE})
                ),
            ],
        )  # fmt: skip


def fork(name: str, program: Callable[[], object], arguments: list[str], device: DeviceId) -> int:
    """Run a program of Flower in a forked process, and return its process id.

    The process ends when this one does. Its secrets do not appear in the list of processes.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    host = os.getpid()
    process = os.fork()
    if process == 0:
        Thread(target=_end_with, args=(host,), daemon=True).start()
        _run_program(name, program, arguments, device)
    return process


def _run_program(
    name: str, program: Callable[[], object], arguments: list[str], device: DeviceId
) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with suppress(OSError):
            Path("/proc/self/comm").write_text(name)
        if identity := os.environ.get(IDENTITY_VARIABLE):
            os.environ[IDENTITY_VARIABLE] = identity.replace(DEVICE_FIELD, str(device))
        sys.argv = [name, *arguments]
        program()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # the exit handlers belong to the parent


def _end_with(host: int) -> None:
    """End this process when its parent, the host, has ended."""
    while os.getppid() == host:
        time.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _ended_processes() -> dict[int, int]:
    """Return ids and statuses of the children that have ended."""
    ended = {}
    with suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = child[1]
    return ended


def device_numbers(text: str) -> range:
    """Read "50" as devices 0 to 49, and "10-19" as devices 10 to 19."""
    first, dash, last = text.partition("-")
    try:
        numbers = range(int(first), int(last) + 1) if dash else range(int(first))
    except ValueError:
        numbers = range(0)
    if not numbers or numbers[0] < 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of devices such as 50, nor a range such as 10-19"
        )
    return numbers


def main() -> None:
    """Run a device host with the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m aquila.flower.device_host", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--devices", type=device_numbers, required=True, help="such as 50, or 10-19"
    )
    parser.add_argument(
        "--slots", type=int, default=os.cpu_count() or 1,
        help="client apps that compute at the same time; default: one per core",
    )  # fmt: skip
    parser.add_argument(
        "--preload", nargs="*", default=["aquila.methods"], metavar="MODULE",
        help="modules that the app imports, besides Flower and torch; default: aquila.methods",
    )  # fmt: skip
    parser.add_argument(
        "options", nargs="*",
        help="options of flower-supernode, after --; {device} stands for the device number",
    )  # fmt: skip
    options = parser.parse_args()
    if options.slots < 1:
        parser.error(f"--slots must be at least 1, not {options.slots}")
    if taken := [o for o in options.options if o.partition("=")[0] in OWN_OPTIONS]:
        parser.error(f"{taken[0]} is set by the device host; leave it out")
    if not hasattr(os, "fork"):
        parser.error("a device host needs a system with fork, such as Linux")
    for module in ("aquila.flower", *options.preload):
        try:
            import_module(module)
        except ImportError as error:
            parser.error(f"--preload {module}: {error}")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    DeviceHost(options.devices, options.options, options.slots).run()


if __name__ == "__main__":
    main()
