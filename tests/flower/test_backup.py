"""The backup drill of docs/operations.md, and state files of other versions."""

import shutil
import struct

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch
from local_grid import local_grid

import aquila
import aquila.flower
from aquila.runtime.state_file import MAGIC, VERSION

METHOD = aquila.create("aquila", alpha=0.1)
THETA = torch.zeros(6)
DEVICES = 3


def run(tmp_path, rounds, out="run", state="state"):
    """Run or resume up to this many rounds, and return the model and the number of records."""
    app = aquila.flower.client_app(
        METHOD,
        lambda device, context: lambda theta: (float(theta.sum()), theta - device),
        state_folder=tmp_path / state,
    )
    options = aquila.RunOptions(out=tmp_path / out)
    result = aquila.flower.strategy(METHOD, THETA, DEVICES, rounds, options=options).start(
        local_grid(app, DEVICES)
    )
    return result.theta, len(result.records)


def test_restored_server_continues_with_newer_devices(tmp_path):
    run(tmp_path, 3)
    shutil.copytree(tmp_path / "run", tmp_path / "backup")
    run(tmp_path, 5)
    shutil.rmtree(tmp_path / "run")  # the disk of the server is lost; the devices are at round 5
    shutil.copytree(tmp_path / "backup", tmp_path / "run")
    theta, records = run(tmp_path, 40)
    assert records == 40
    assert torch.allclose(theta, torch.ones(6), atol=0.05)  # the mean of the devices' minima


def test_restored_server_and_devices_give_the_same_bits(tmp_path):
    undisturbed, _ = run(tmp_path, 6, out="other", state="other-state")
    run(tmp_path, 3)
    for name in ("run", "state"):
        shutil.copytree(tmp_path / name, tmp_path / f"backup-{name}")
    run(tmp_path, 5)
    for name in ("run", "state"):
        shutil.rmtree(tmp_path / name)
        shutil.copytree(tmp_path / f"backup-{name}", tmp_path / name)
    assert torch.equal(run(tmp_path, 6)[0], undisturbed)


@pytest.mark.parametrize("version", [1, VERSION + 1])
def test_state_of_another_version_is_refused_and_kept(tmp_path, version):
    run(tmp_path, 2)
    path = tmp_path / "run" / "server.state"
    content = MAGIC + struct.pack("<I", version) + path.read_bytes()[8:]
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"has version {version}; this release reads version"):
        run(tmp_path, 3)
    assert path.read_bytes() == content


def test_device_state_of_another_version_costs_one_upload(tmp_path, log):
    run(tmp_path, 3)
    (path,) = (tmp_path / "state").glob("*/device-1.state")
    path.write_bytes(MAGIC + struct.pack("<I", 1) + path.read_bytes()[8:])
    theta, records = run(tmp_path, 40)
    assert records == 40
    assert torch.allclose(theta, torch.ones(6), atol=0.05)
    assert "device 1 restarts from its initial state" in log.text
