"""The example app gives the same bits as the simulator."""

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch
from local_grid import LocalGrid, Node

import aquila
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.reply_archive import FolderArchive
from aquila.sim.records import read_records
from faults.consistency import server_of

APP = Path(__file__).parents[2] / "examples" / "flower"
ROUNDS = 3
CONFIG = {"method": "aquila", "alpha": 1.0, "rounds": ROUNDS}


def example(name: str = "digits_app") -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, APP / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def simulated(app, monkeypatch):
    """Run the example in the simulator; return the run and the frames of every device."""
    frames: list[bytes] = []
    pack = DeviceSession.pack

    def recording(session, reply):
        frames.append(pack(session, reply))
        return frames[-1]

    monkeypatch.setattr(DeviceSession, "pack", recording)
    context = SimpleNamespace(run_config=CONFIG)
    problem = aquila.problem(app.make_model(), [app.DATA.train], app.DATA.test)
    run = aquila.simulate(
        app.make_method(context),
        problem.theta0,
        [app.make_device(device, context) for device in range(app.DEVICES)],
        ROUNDS,
        evaluate=lambda theta: {"accuracy": problem.evaluate(theta)["test_accuracy"]},
        options=aquila.RunOptions(workers=1),
    )
    by_device = {device: frames[device :: app.DEVICES] for device in range(app.DEVICES)}
    return run, by_device, app.make_method(context), problem.theta0


def test_example_equals_simulation(tmp_path, monkeypatch):
    app, folder = example(), tmp_path / "run"
    config = {**CONFIG, "folder": str(folder)}
    nodes = [Node(app.client, {"partition-id": d}, settings=config) for d in range(app.DEVICES)]
    app.server(LocalGrid(dict(enumerate(nodes, 5))), SimpleNamespace(run_config=config))

    wanted, frames, method, theta0 = simulated(app, monkeypatch)
    session = server_of(folder, method, theta0, app.DEVICES)
    assert torch.equal(session.theta, wanted.theta)
    assert read_records(folder) == wanted.records
    archive = FolderArchive(folder / "archive")
    assert {device: list(archive.entries(device, 0))[1:] for device in frames} == frames


def test_demonstration_prints_sent_bytes(monkeypatch):
    monkeypatch.syspath_prepend(str(APP))
    deploy = example("deploy")
    wanted, *_ = simulated(example(), monkeypatch)
    sent = sum(record.uplink_bytes for record in wanted.records)
    lines = deploy.summary(wanted.records).splitlines()
    assert lines[0].startswith("3 rounds, 3 devices, 2,410 coordinates, accuracy 0.")
    assert lines[1].split(":")[0].split() == ["devices", "sent", f"{sent:,}", "bytes"]
    assert lines[2].split(":")[0].split()[-2:] == [f"{3 * 3 * (2410 * 4 + 9):,}", "bytes"]
    assert deploy.read_setting("rounds=5") == ("rounds", 5)
    assert deploy.read_setting("alpha=0.5") == ("alpha", 0.5)
    assert deploy.read_setting("method=laq") == ("method", "laq")
    with pytest.raises(SystemExit, match="'rounds' is not a setting"):
        deploy.read_setting("rounds")
