"""Files of an earlier version continue with the same bits, and a copy of them stays.

`tests/golden/state_version_2` was written by a release with version 2, after three rounds.
"""

import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

import aquila
from aquila.core.envelope import Flag, Kind, checksum_of
from aquila.core.packet import Packet, WireError
from aquila.core.wire import pack
from aquila.runtime.archive_upgrades import convert_archive
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.messages import Ack
from aquila.runtime.persist import (
    load_device,
    load_server,
    read_server_positions,
    save_server,
    server_to_bytes,
)
from aquila.runtime.reply_archive import LOST_PART, FolderArchive, Position
from aquila.runtime.server_session import ServerSession
from aquila.runtime.state_file import VERSION, SavedStateError, read_state
from aquila.runtime.state_upgrades import UPGRADES
from aquila.sim.oracle import as_shard

OLD = Path(__file__).parents[1] / "golden" / "state_version_2"
METHOD = aquila.create("aquila", alpha=0.1)
D, ROUNDS = 6, 3


def new_device(m):
    target = torch.arange(D) * (m + 1.0)
    shard = as_shard(lambda theta: (float((theta - target).square().sum() / 2), theta - target))
    return DeviceSession(METHOD, m, shard, torch.zeros(D), seed=0)


def new_server(archive=None):
    fleet = aquila.Fleet.uniform(D, 2)
    return ServerSession(METHOD, torch.zeros(D), fleet, seed=0, archive=archive)


def run_rounds(server, devices, rounds):
    for _ in range(rounds):
        for m, order in server.open_round().items():
            server.receive(m, devices[m].handle(order))
        server.close_round()


def loaded(folder, archive=None):
    """Return server and devices that continue from copies of the old files."""
    if not folder.exists():
        shutil.copytree(OLD, folder)
    server, devices = new_server(archive), [new_device(m) for m in range(2)]
    assert load_server(folder / "server.state", server)
    for m, device in enumerate(devices):
        assert load_device(folder / f"device-{m}.state", device)
    return server, devices


def test_there_is_a_step_from_every_version_since_the_oldest():
    assert list(UPGRADES) == list(range(min(UPGRADES), VERSION))


def test_a_run_of_version_2_continues_with_the_same_bits(tmp_path):
    uninterrupted, devices = new_server(), [new_device(m) for m in range(2)]
    run_rounds(uninterrupted, devices, ROUNDS + 3)
    server, devices = loaded(tmp_path / "run")
    assert server.round == ROUNDS
    run_rounds(server, devices, 3)
    assert torch.equal(server.theta, uninterrupted.theta)


def test_old_files_stay_next_to_the_new_ones(tmp_path, caplog):
    server, _ = loaded(tmp_path / "run")
    path = tmp_path / "run" / "server.state"
    save_server(path, server)
    for name in ("server", "device-0", "device-1"):
        kept = tmp_path / "run" / f"{name}.state.version-2"
        assert kept.read_bytes() == (OLD / f"{name}.state").read_bytes()
    assert f"it continues as version {VERSION}, and server.state.version-2 keeps" in caplog.text
    caplog.clear()
    assert load_server(path, new_server())
    assert not caplog.text


def test_restarts_of_devices_with_unreadable_replies_are_refused(tmp_path, caplog):
    server, devices = loaded(tmp_path / "run", FolderArchive(tmp_path / "archive"))
    assert read_server_positions(OLD / "server.state") == (Position(-2),) * 2
    order = server.open_round()[0]
    with pytest.raises(WireError, match="the archive of its earlier replies is incomplete"):
        server.receive(0, new_device(0).handle(order))
    server.receive(0, devices[0].handle(order))
    server.close_round()


def converted(folder, archive, server):
    """Return the positions after the conversion of the old archive in a folder."""
    histories = server.histories
    positions = convert_archive(
        folder, archive, histories.positions, server.acks, [set(range(ROUNDS))] * 2, server.round
    )
    histories.restore(positions, histories.restarts)
    return positions


def test_device_restarts_after_its_old_archive_was_converted(tmp_path, caplog):
    folder = tmp_path / "run" / "archive"
    shutil.copytree(OLD, tmp_path / "run")
    archive = FolderArchive(folder)
    server, devices = loaded(tmp_path / "run", archive)
    assert [p.entries for p in converted(folder, archive, server)] == [1 + ROUNDS] * 2
    assert "converted the old archive of devices 0, 1" in caplog.text
    assert (folder / "0.frames").read_bytes() == (OLD / "archive" / "0.frames").read_bytes()
    devices[0] = new_device(0)
    run_rounds(server, devices, 2)
    turns = [device.snapshot().pending.turn for device in devices]
    mean = torch.stack([METHOD.device.memory(turn.state).double() for turn in turns]).mean(0)
    torch.testing.assert_close(METHOD.server.memory(server.state), mean)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-50], "it does not end with the reply to round 2"),
        (lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:], "a frame in it is damaged"),
        (lambda data: with_byte(data, 0, 5, Kind.DITHERED), "cannot read its dithered frames"),
        (lambda data: without_frame(data, 0), "it lacks the reply to round 0"),
        (lambda data: without_frame(data, 1), "it lacks the reply to round 1"),
    ],
)
def test_damaged_old_archive_is_not_converted(change, reason, tmp_path, caplog):
    shutil.copytree(OLD, tmp_path / "run")
    archive = FolderArchive(tmp_path / "run" / "archive")
    server, devices = loaded(tmp_path / "run", archive)
    old = (OLD / "archive" / "0.frames").read_bytes()
    (tmp_path / "run" / "archive" / "0.frames").write_bytes(change(old))
    positions = converted(tmp_path / "run" / "archive", archive, server)
    assert positions[0] == Position(LOST_PART)
    assert "the old archive of device 0 cannot be converted: " in caplog.text
    assert f"{reason}; the server refuses restarts of this device" in caplog.text
    run_rounds(server, devices, 1)


def frames_of(data):
    """Return the frames of an archive."""
    frames = []
    while data:
        end = 8 + int.from_bytes(data[:8], "little")
        frames.append(data[8:end])
        data = data[end:]
    return frames


def archive_of(frames):
    return b"".join(len(frame).to_bytes(8, "little") + frame for frame in frames)


def with_byte(data, number, place, value):
    """Return an archive with another byte in the header of a frame, and a valid checksum."""
    frames = frames_of(data)
    frame = bytearray(frames[number][:-4])
    frame[place] = value
    frames[number] = bytes(frame) + zlib.crc32(frame).to_bytes(4, "little")
    return archive_of(frames)


def without_frame(data, number):
    frames = frames_of(data)
    del frames[number]
    return archive_of(frames)


def test_replies_before_a_restart_need_not_be_in_an_old_archive(tmp_path):
    data = (OLD / "archive" / "0.frames").read_bytes()
    (tmp_path / "0.frames").write_bytes(without_frame(with_byte(data, 1, 6, Flag.FRESH), 0))
    acks, lost = [Ack(2, checksum_of(read_old(0)[2]))], [Position(LOST_PART)]
    archive = FolderArchive(tmp_path)
    (position,) = convert_archive(tmp_path, archive, lost, acks, [{0, 1, 2}], round_number=3)
    assert position.entries == 3


def test_old_replies_of_rounds_after_the_checkpoint_do_not_count(tmp_path):
    archive = FolderArchive(tmp_path / "archive")
    server = new_server(archive)
    acks = [Ack(1, checksum_of(read_old(0)[1])), Ack()]
    lost = [Position(LOST_PART), Position()]
    uploads = [{0, 1, 2}] * 2
    positions = convert_archive(OLD / "archive", archive, lost, acks, uploads, round_number=2)
    assert [p.entries for p in positions] == [3, 0]
    server.histories.restore(positions, server.histories.restarts)
    assert server.histories.incomplete_devices() == []


def read_old(device):
    return frames_of((OLD / "archive" / f"{device}.frames").read_bytes())


def test_a_file_with_the_wrong_version_is_refused():
    content = bytearray((OLD / "server.state").read_bytes())
    content[4] = 1
    with pytest.raises(SavedStateError, match="has version 1; this release reads versions 2 to"):
        read_state(bytes(content))
    content = bytearray(server_to_bytes(new_server()))
    content[4] = 2
    with pytest.raises(SavedStateError, match="version 2, but the content of a later one"):
        read_state(bytes(content))


def test_a_turn_with_a_foreign_frame_is_refused():
    frame = pack(Packet(1))
    arrays = {"pending.frame": np.frombuffer(frame, np.uint8)}
    with pytest.raises(ValueError, match=r"its pending\.frame is not a frame of version 2"):
        UPGRADES[2](arrays)
