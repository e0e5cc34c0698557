"""A deployment on loopback, of the example that users copy, gives the simulator's bits."""

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

import aquila
import aquila.sim.loop
from aquila.core.wire import pack
from aquila.flower.loopback import MARK, federation, strays
from aquila.runtime.archive import FolderArchive
from aquila.runtime.persist import load_server
from aquila.runtime.session import ServerSession
from aquila.sim.records import read_records

APP = Path(__file__).parents[2] / "examples" / "flower"
ROUNDS = 2


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_app", APP / "digits_app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def simulated(app, monkeypatch):
    """Run the example in the simulator; return its run and every device's frames."""
    frames: list[bytes] = []

    def recording(packet):
        frames.append(pack(packet))
        return frames[-1]

    monkeypatch.setattr(aquila.sim.loop, "pack", recording)
    context = SimpleNamespace(run_config={"method": "aquila", "alpha": 0.5})
    whole = aquila.problem(app.make_model(), [app.DATA.train], app.DATA.test)
    run = aquila.simulate(
        app.make_method(context),
        whole.theta0,
        [app.make_device(device, context) for device in range(app.DEVICES)],
        ROUNDS,
        evaluate=lambda theta: {"accuracy": whole.evaluate(theta)["test_accuracy"]},
        workers=1,
    )
    by_device = {device: frames[device :: app.DEVICES] for device in range(app.DEVICES)}
    return run, by_device, app.make_method(context), whole.theta0


@pytest.mark.deployment
def test_the_example_deployed(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(aquila.__file__).parents[1]))
    app, folder = example(), tmp_path / "run"
    with federation(app.DEVICES, tmp_path / "federation") as running:
        name = running.environment[MARK]
        printed = running.run(APP, {"rounds": ROUNDS, "folder": str(folder)}, seconds=110)
    assert not strays(name)
    assert f"{ROUNDS} of {ROUNDS} done" in printed, printed

    wanted, frames, method, theta0 = simulated(app, monkeypatch)
    fleet = aquila.Fleet.uniform(theta0.numel(), app.DEVICES)
    session = ServerSession(method, theta0, fleet, seed=0)
    assert load_server(folder / "server.state", session)
    assert torch.equal(session.theta, wanted.theta)
    assert read_records(folder / "records.jsonl") == wanted.records
    archive = FolderArchive(folder / "archive")
    assert {device: archive.replies(device) for device in frames} == frames
