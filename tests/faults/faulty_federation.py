"""A federation on loopback whose devices and processes fail on demand.

A script is a generator. It injects faults and yields conditions to wait for. The run polls the
conditions and resumes the script when one becomes true.
"""

import json
import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

import aquila
from aquila.flower.death_notice import NOTICE
from aquila.flower.local_processes import (
    FEDERATION_VARIABLE,
    FederationError,
    Process,
    leftover_processes,
)
from aquila.flower.loopback import Federation, federation
from aquila.sim.records import Record, read_records
from faults.consistency import assert_consistent, server_of
from faults.setup import DEVICES, METHOD, theta0

APP = Path(__file__).parent / "app"
Condition = Callable[[], bool]
Script = Generator[Condition, None, None]


class FaultyFederation:
    """A running federation, and the control folder that its devices read."""

    def __init__(self, running: Federation, folder: Path, devices: int) -> None:
        self.running = running
        self.folder = folder
        self.devices = devices
        self.run_folder = folder / "run"
        self.states = running.folder / "state" / "aquila" / "flower"

    def run(self, script: Script, seconds: float, **config: object) -> str:
        """Run the app and the script to their end, and return what the app printed."""
        waiting: list[Condition] = [lambda: True]
        printed = ""

        def watch(text: str) -> None:
            nonlocal printed
            printed += text
            while waiting and waiting[0]():
                waiting[:] = [condition for condition in [next(script, None)] if condition]

        try:
            given = {"control_folder": str(self.folder), "devices": self.devices, **config}
            self.running.run(APP, given, seconds, watch)
        except FederationError as error:  # a script may kill the server app
            if NOTICE not in str(error):
                raise
        assert not waiting, "the run ended before the script did"
        return printed

    def rounds_closed(self, rounds: int) -> Condition:
        """Return a condition: this many rounds are closed."""
        return lambda: len(self.records()) >= rounds

    def turn_started(self, device: int) -> Condition:
        """Return a condition: the device has started a turn."""
        (self.folder / f"working-{device}").unlink(missing_ok=True)
        return lambda: self._process(device) is not None

    def set_fault(self, kind: str, device: int, text: str = "") -> None:
        """Make a device fail in the given way."""
        (self.folder / f"{kind}-{device}").write_text(text)

    def clear_fault(self, kind: str, device: int) -> None:
        """Make a device work normally again."""
        (self.folder / f"{kind}-{device}").unlink()

    def kill_app(self, device: int) -> None:
        """Kill the process that computes for a device."""
        process = self._process(device)
        assert process is not None
        os.kill(process, signal.SIGKILL)

    def kill_node(self, device: int) -> None:
        """Kill a SuperNode and all its processes, as a power cut does."""
        _kill_tree(self.running.node(device))

    def kill_server(self) -> None:
        """Kill the SuperLink and all its processes, including the ServerApp."""
        _kill_tree(self.running.superlink)

    def delete_state(self, device: int) -> None:
        """Delete the state of a device."""
        name = json.loads((self.run_folder / "run.json").read_text())["run"]
        (self.states / name / f"device-{device}.state").unlink()

    def records(self) -> list[Record]:
        """Return the records of the closed rounds."""
        return read_records(self.run_folder)

    def theta(self) -> torch.Tensor:
        """Return the model in the checkpoint."""
        return server_of(self.run_folder, METHOD, theta0(), self.devices).theta

    def check(self, rounds: int) -> None:
        """Assert that all rounds are closed and that q̄ counts every memory exactly once."""
        assert len(self.records()) == rounds
        assert_consistent(self.run_folder, self.states, METHOD, theta0(), self.devices)

    def _process(self, device: int) -> int | None:
        path = self.folder / f"working-{device}"
        text = path.read_text() if path.exists() else ""
        return int(text) if text else None


def no_faults() -> Script:
    """Return a script without faults."""
    yield from ()


def _kill_tree(process: Process) -> None:
    """Kill a process and its descendants, including those in other sessions."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            after_name = (folder / "stat").read_text().rpartition(")")[2]
            parents[int(folder.name)] = int(after_name.split()[1])
    tree = [process.handle.pid]
    for member in tree:
        tree += [child for child, parent in parents.items() if parent == member]
    for member in tree:
        with suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    process.handle.wait()


@contextmanager
def faulty_federation(folder: Path, devices: int = DEVICES) -> Iterator[FaultyFederation]:
    """Start a federation, and stop all its processes on exit."""
    (folder / "control").mkdir(parents=True)
    tests = Path(__file__).parents[1]
    source = Path(aquila.__file__).parents[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(source), str(tests)]))
        with federation(devices, folder / "federation") as running:
            yield FaultyFederation(running, folder / "control", devices)
    assert not leftover_processes(running.environment[FEDERATION_VARIABLE])
