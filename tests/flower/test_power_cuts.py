"""A power cut at any call leaves a run that can be resumed, with nothing lost that was promised."""

import os
import stat
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e '.[flower]'")
import torch

import aquila
from aquila.core.method import server_memory
from aquila.core.packet import WireError
from aquila.flower.device_files import answer_from_disk
from aquila.flower.run_folder import ServerRunFolder
from aquila.runtime import files
from aquila.runtime.checkpoints import EarlierCheckpoints
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.persist import load_device
from aquila.runtime.reply_archive import FolderArchive
from aquila.runtime.server_session import ServerSession
from aquila.runtime.traffic import Traffic
from aquila.sim.oracle import as_shard
from aquila.sim.records import RoundOutcome, make_record
from aquila.sim.rollback import roll_back
from helpers.power_cut import Disk, recorded_disk
from helpers.problems import ridge

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux")
PROBLEM = ridge(devices=2, dimension=3)
METHOD = aquila.create("laq", alpha=0.1, bits=4)
THETA = torch.zeros(3)
FLEET = aquila.Fleet.uniform(3, 2)
OPTIONS = aquila.RunOptions(checkpoint_every=2, keep_checkpoints=1)
ROUNDS = 6
RUN = "0123456789abcdef"


@pytest.fixture(autouse=True)
def _silence_log(caplog):
    caplog.set_level("ERROR", "aquila")


def new_device(m):
    return DeviceSession(METHOD, m, as_shard(PROBLEM.devices[m]), THETA, seed=0)


class Server:
    """A server with a folder, and the rounds that it runs with devices in memory."""

    def __init__(self, path):
        self.folder = ServerRunFolder(path, "settings", OPTIONS)
        archive = self.folder.archive
        self.session = ServerSession(METHOD, THETA, FLEET, seed=0, archive=archive)
        self.session.histories.min_fold_bytes = 50
        self.records = self.folder.resume(self.session)

    def run_round(self, devices):
        session = self.session
        self.folder.begin_round(session.round)
        for m, order in session.open_round().items():
            session.receive(m, devices[m].handle(order))
        number, replies = session.round, session.close_round()
        outcome = RoundOutcome.of(Traffic(), replies, 0)
        self.folder.save_round(make_record(number, outcome, {}, FLEET, {}), session)


def record_run(root):
    """Run some rounds, in which a device loses its state twice, and return disk and models."""
    devices, models = [new_device(m) for m in range(2)], []
    with recorded_disk(root) as disk:
        server = Server(root / "run")
        name = server.folder.name
        for round_number in range(ROUNDS):
            models.append(server.session.theta.clone())
            if round_number in (3, 5):
                devices[0] = new_device(0)
            server.run_round(devices)
            disk.progress = round_number + 1
        models.append(server.session.theta.clone())
    return disk, models, name


def check_image(path, progress, models, name):
    """Resume from an image, and let every device restart, which reads the whole archive."""
    server = Server(path / "run")
    session = server.session
    assert progress <= session.round <= progress + 1
    assert len(server.records) == session.round
    assert torch.equal(session.theta, models[session.round])
    assert server.folder.name == name or session.round == progress == 0
    devices = [new_device(m) for m in range(2)]
    server.run_round(devices)
    for device in devices:
        device.apply_ack(session.acks[device.device])
    q_bar = server_memory(session.half).memory(session.state)
    mean = sum(device.state.q.double() for device in devices) / 2
    torch.testing.assert_close(q_bar, mean, rtol=1e-5, atol=1e-6)


def check_rollback(path, round_number, models):
    """Roll back to an earlier checkpoint of an image, and let every device restart."""
    roll_back(path / "run", round_number)
    server = Server(path / "run")
    assert torch.equal(server.session.theta, models[round_number])
    server.run_round([new_device(m) for m in range(2)])


def check_all(disk, models, name, folder):
    for number, image in enumerate(disk.images):
        path = folder / str(number)
        image.write(path)
        earlier = EarlierCheckpoints(path / "run" / "server.state").rounds()
        check_image(path, image.progress, models, name)
        for round_number in earlier:
            path = folder / f"{number}-{round_number}"
            image.write(path)
            check_rollback(path, round_number, models)


def test_server_survives_a_power_cut_at_every_call(tmp_path):
    (tmp_path / "disk").mkdir()
    disk, models, name = record_run(tmp_path / "disk")
    assert len(disk.images) > 100
    check_all(disk, models, name, tmp_path)


def without_synced_contents(patch):
    fsync = Disk.fsync

    def only_folders(self, descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            fsync(self, descriptor)

    patch.setattr(Disk, "fsync", only_folders)


def without_synced_names(patch):
    patch.setattr(files, "sync_folder", lambda folder: None)


def with_archive_after_the_state(patch):
    """The replies of a round reach the archive only with those of the next round."""
    delayed, append = [], FolderArchive.append

    def late(self, device, part, entry):
        for earlier in delayed:
            append(self, *earlier)
        delayed[:] = [(device, part, entry)]
        return 0

    patch.setattr(FolderArchive, "append", late)


@pytest.mark.parametrize(
    "breach", [without_synced_contents, without_synced_names, with_archive_after_the_state]
)
def test_missing_syncs_are_detected(breach, tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    breach(monkeypatch)
    disk, models, name = record_run(tmp_path / "disk")
    monkeypatch.undo()
    with pytest.raises((AssertionError, ValueError, WireError)):
        check_all(disk, models, name, tmp_path)


def test_device_survives_a_power_cut_at_every_call(tmp_path):
    server = ServerSession(METHOD, THETA, FLEET, seed=0)
    root = tmp_path / "disk"
    root.mkdir()
    frames = []
    with recorded_disk(root) as disk:
        for _ in range(3):
            order = server.open_round()[0]
            frames.append(answer_from_disk(new_device(0), order, root / "states", RUN))
            disk.progress += 1
            server.receive(0, frames[-1])
            server.close_round()
    assert len(disk.images) > 15
    for number, image in enumerate(disk.images):
        image.write(tmp_path / str(number))
        device = new_device(0)
        path = tmp_path / str(number) / "states" / RUN / "device-0.state"
        assert load_device(path, device) or image.progress == 0
        assert image.progress <= device.last_round + 1 <= image.progress + 1
