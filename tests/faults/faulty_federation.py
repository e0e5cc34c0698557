"""Where a fault happens: a federation on loopback, devices told what to do, a run that is watched.

A script is a generator. It does something to the federation and yields what to wait for; while a
run goes on it is asked again and again.
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
from aquila.flower.loopback import (
    FEDERATION_VARIABLE,
    Federation,
    Process,
    federation,
    leftover_processes,
)
from aquila.sim.records import Record, read_records
from faults.consistency import assert_consistent, server_of
from faults.setup import DEVICES, METHOD, theta0

APP = Path(__file__).parent / "app"
Condition = Callable[[], bool]
Script = Generator[Condition, None, None]


class FaultyFederation:
    """A running federation and the folder that its devices look into."""

    def __init__(self, running: Federation, folder: Path) -> None:
        self.running = running
        self.folder = folder
        self.run_folder = folder / "run"
        self.states = running.folder / "state" / "aquila" / "flower"

    def run(self, script: Script, seconds: float, **config: object) -> str:
        """Run the app to its end beside a script; return what was printed."""
        waiting: list[Condition] = [lambda: True]

        def watch(_: str) -> None:
            while waiting and waiting[0]():
                waiting[:] = [condition for condition in [next(script, None)] if condition]

        printed = self.running.run(
            APP, {"control_folder": str(self.folder), **config}, seconds, watch
        )
        assert not waiting, "the run ended before the script did"
        return printed

    def rounds_closed(self, rounds: int) -> Condition:
        """Until so many rounds are closed."""
        return lambda: len(self.records()) >= rounds

    def turn_started(self, device: int) -> Condition:
        """Until a device is in the middle of a turn."""
        (self.folder / f"working-{device}").unlink(missing_ok=True)
        return lambda: self._process(device) is not None

    def set_fault(self, what: str, device: int, text: str = "") -> None:
        """Tell a device to misbehave."""
        (self.folder / f"{what}-{device}").write_text(text)

    def clear_fault(self, what: str, device: int) -> None:
        """Tell a device to behave again."""
        (self.folder / f"{what}-{device}").unlink()

    def kill_app(self, device: int) -> None:
        """Kill the process that a device computes in."""
        process = self._process(device)
        assert process is not None
        os.kill(process, signal.SIGKILL)

    def kill_node(self, device: int) -> None:
        """Kill a SuperNode and all that belongs to it, as a power cut does."""
        _kill_tree(self.running.node(device))

    def kill_server(self) -> None:
        """Kill the SuperLink and all that belongs to it, the app's server too."""
        _kill_tree(self.running.superlink)

    def delete_state(self, device: int) -> None:
        """Take the device's state away."""
        name = json.loads((self.run_folder / "run.json").read_text())["run"]
        (self.states / name / f"device-{device}.state").unlink()

    def records(self) -> list[Record]:
        """Return the records of the rounds that are closed."""
        return read_records(self.run_folder)

    def theta(self) -> torch.Tensor:
        """Return the model of the checkpoint."""
        return server_of(self.run_folder, METHOD, theta0(), DEVICES).theta

    def check(self, rounds: int) -> None:
        """Assert that all rounds were closed and that no memory is counted twice or not at all."""
        assert len(self.records()) == rounds
        assert_consistent(self.run_folder, self.states, METHOD, theta0(), DEVICES)

    def _process(self, device: int) -> int | None:
        path = self.folder / f"working-{device}"
        text = path.read_text() if path.exists() else ""
        return int(text) if text else None


def no_faults() -> Script:
    """A script in which nothing happens while the run goes on."""
    yield from ()


def _kill_tree(process: Process) -> None:
    """Kill a process and its descendants, also those in sessions of their own."""
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
def faulty_federation(folder: Path) -> Iterator[FaultyFederation]:
    """Set up a federation; at the end nothing of it is left running."""
    (folder / "control").mkdir(parents=True)
    tests = Path(__file__).parents[1]
    source = Path(aquila.__file__).parents[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(source), str(tests)]))
        with federation(DEVICES, folder / "federation") as running:
            yield FaultyFederation(running, folder / "control")
    assert not leftover_processes(running.environment[FEDERATION_VARIABLE])
