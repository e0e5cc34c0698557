"""Attack the proxy of a real federation with connections that have no key, and train meanwhile.

python tests/hostile/load.py [--connections 2000] [--rounds 2]

It starts a SuperLink, the proxy and three SuperNodes on loopback, opens the hostile connections,
runs the example app, and fails unless all rounds close with all devices. `make load` runs it.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from aquila.deploy.federation import create
from aquila.deploy.plan import Plan
from helpers.hostile_clients import Attack, allow_open_files, open_files, peak_memory
from helpers.real_federation import (
    ACTIVATED,
    ProcessGroup,
    free_ports,
    installed_environment,
    serve,
    tls_context,
    wait_for_output,
)

DEVICES = 3
APP = Path(__file__).parents[2] / "examples" / "flower"
MAX_MEMORY = 200
"""MiB that the proxy may use."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    allow_open_files(2 * options.connections + 100)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = ProcessGroup(folder, installed_environment(folder))
        try:
            return asyncio.run(attack(processes, folder, options.connections, options.rounds))
        finally:
            processes.stop()


async def attack(processes: ProcessGroup, folder: Path, connections: int, rounds: int) -> int:
    """Train under attack; return the exit status."""
    federation, port = folder / "fed", free_ports(2 + DEVICES)
    create(federation, Plan(DEVICES, port=port))
    server = serve(processes, federation, port, tls=True)
    register = [str(federation / "server" / "register.sh")]
    subprocess.run(register, env=processes.environment, check=True, stdout=subprocess.DEVNULL)
    hostile = Attack(port, tls_context(federation))
    task = asyncio.create_task(hostile.run(connections))
    await asyncio.sleep(10)
    proxy = proxy_process(server.handle.pid)
    print(f"{connections} hostile connections; the proxy has {open_files(proxy)} open files")
    for device in range(DEVICES):
        node = processes.start(f"device-{device}", federation / f"device-{device}" / "start.sh")
        await asyncio.to_thread(wait_for_output, node, ACTIVATED)
    print(f"{DEVICES} devices connected under attack")
    began = time.monotonic()
    output = await asyncio.to_thread(train, processes, federation, folder, rounds)
    memory, attempts = peak_memory(proxy), hostile.counts.total()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    lost = output.count(" 0 lost,")
    print(
        f"{output.count('round ')} rounds, {lost} without a lost reply, in "
        f"{time.monotonic() - began:.0f} s; {attempts} hostile connections were closed; the proxy "
        f"used at most {memory} MiB"
    )
    complete = f"{rounds} of {rounds} done" in output and lost == rounds
    passed = complete and "replies are signed" in output and memory < MAX_MEMORY
    print("passed" if passed else f"FAILED\n{output[-3000:]}")
    return 0 if passed else 1


def train(processes: ProcessGroup, federation: Path, folder: Path, rounds: int) -> str:
    """Run the example app and return its output."""
    environment = {**processes.environment, "FLWR_HOME": str(federation / "server" / "flwr")}
    config = f'rounds={rounds} folder="{folder / "run"}"'
    command = ["flwr", "run", str(APP), "federation", "--stream", "-c", config]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    return done.stdout + done.stderr


def proxy_process(server: int) -> int:
    """Return the process id of the proxy, a descendant of the server's script."""
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    for child in children:
        if b"proxy" in Path(f"/proc/{child}/cmdline").read_bytes():
            return int(child)
    raise AssertionError("the server has no proxy")


if __name__ == "__main__":
    sys.exit(main())
