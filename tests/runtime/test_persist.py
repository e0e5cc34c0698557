"""Restored sessions continue with the same bits, and invalid files are rejected."""

import os
import stat
from dataclasses import replace

import pytest
import torch

import aquila
from aquila.core.state import to_arrays
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.options import RunOptions
from aquila.runtime.persist import (
    SavedStateError,
    device_to_bytes,
    load_device,
    load_server,
    restore_device,
    restore_server,
    save_device,
    save_server,
    server_to_bytes,
)
from aquila.runtime.reply_archive import FolderArchive
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import as_shard
from helpers import contract
from helpers.problems import ridge

D = 25
PROBLEM = ridge(devices=2, dimension=D)

SESSIONS = [
    *((name, 0.0) for name in aquila.METHODS),
    *((name, 0.5) for name in contract.ONE_OF_EACH_KIND),
]


def server_of(name, archive=None, downlink_error=0.0):
    method, theta = aquila.create(name, alpha=0.1), torch.zeros(D)
    return ServerSession(
        method,
        theta,
        aquila.Fleet.uniform(D, 2),
        seed=0,
        options=RunOptions(downlink_error=downlink_error),
        archive=archive,
        services=contract.services(name, 2),
    )


def device_of(name, m=0):
    method = aquila.create(name, alpha=0.1)
    return DeviceSession(method, m, as_shard(PROBLEM.devices[m]), torch.zeros(D), seed=0)


def run_rounds(server, devices, rounds):
    for _ in range(rounds):
        for m, order in server.open_round().items():
            server.receive(m, devices[m].handle(order))
        server.close_round()


@pytest.mark.parametrize(("name", "downlink_error"), SESSIONS)
def test_restarting_every_session_in_every_round_gives_the_same_bits(
    name, downlink_error, tmp_path
):
    uninterrupted, restarted = (server_of(name, downlink_error=downlink_error) for _ in range(2))
    devices, again = [[device_of(name, m) for m in range(2)] for _ in range(2)]
    for _ in range(4):
        run_rounds(uninterrupted, devices, 1)
        for m, order in restarted.open_round().items():
            frame = again[m].handle(order)
            save_device(tmp_path / f"{m}", again[m])
            again[m] = device_of(name, m)
            assert load_device(tmp_path / f"{m}", again[m])
            assert again[m].handle(order) == frame
            restarted.receive(m, frame)
        restarted.close_round()
        save_server(tmp_path / "server", restarted)
        restarted = server_of(name, downlink_error=downlink_error)
        assert load_server(tmp_path / "server", restarted)
        assert restarted.open_round() == uninterrupted.open_round()
    assert torch.equal(uninterrupted.theta, restarted.theta)
    assert uninterrupted.acks == restarted.acks
    assert device_to_bytes(devices[1]) == device_to_bytes(again[1])


def test_stale_turn_is_saved():
    server, devices = server_of("aquila"), [device_of("aquila", m) for m in range(2)]
    late = server.open_round()[0]
    run_rounds(server, devices, 2)
    order = server.open_round()[0]
    replies = devices[0].handle(order), devices[0].handle(late)
    other = device_of("aquila")
    restore_device(other, device_to_bytes(devices[0]))
    assert (other.handle(order), other.handle(late)) == replies


def test_missing_file_loads_nothing(tmp_path):
    assert not load_device(tmp_path / "none", device_of("aquila"))
    assert not load_server(tmp_path / "none", server_of("aquila"))


@pytest.mark.skipif(os.name != "posix", reason="modes are a POSIX concept")
def test_only_the_owner_can_read_saved_sessions(tmp_path):
    save_device(tmp_path / "device", device_of("aquila"))
    save_server(tmp_path / "server", server_of("aquila"))
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {0o600}


def used_device():
    server, devices = server_of("aquila"), [device_of("aquila", m) for m in range(2)]
    run_rounds(server, devices, 2)
    devices[0].handle(server.open_round()[0])
    return server, devices[0]


@pytest.mark.parametrize("seed", range(3))
def test_any_damage_is_detected(seed):
    server, device = used_device()
    for content, restore, fresh in (
        (device_to_bytes(device), restore_device, device_of("aquila")),
        (server_to_bytes(server), restore_server, server_of("aquila")),
    ):
        before = {name: array.copy() for name, array in to_arrays(fresh.state).items()}
        for at in range(seed, len(content), 97):
            damaged = bytearray(content)
            damaged[at] ^= 1 << at % 8
            with pytest.raises(SavedStateError):
                restore(fresh, bytes(damaged))
            with pytest.raises(SavedStateError):
                restore(fresh, content[:at])
        after = to_arrays(fresh.state)
        assert all((before[name] == after[name]).all() for name in before)
        restore(fresh, content)


def test_files_of_other_sessions_are_rejected_by_name():
    server, device = used_device()
    content = device_to_bytes(device)
    with pytest.raises(SavedStateError, match=r"it belongs to device 0 of .*, not to device 1"):
        restore_device(device_of("aquila", 1), content)
    with pytest.raises(SavedStateError, match="Laq"):
        restore_device(device_of("laq"), content)
    with pytest.raises(SavedStateError, match="not to server"):
        restore_server(server_of("aquila"), content)
    with pytest.raises(SavedStateError, match="does not start with AQST"):
        restore_device(device, b"PK" + content)
    with pytest.raises(SavedStateError, match="version 9"):
        restore_server(server, content[:4] + b"\x09" + content[5:])


def test_restarted_device_is_counted_once_with_an_archive_on_disk(tmp_path):
    server = server_of("aquila", FolderArchive(tmp_path / "archive"))
    devices = [device_of("aquila", m) for m in range(2)]
    run_rounds(server, devices, 3)
    devices[0] = device_of("aquila")
    run_rounds(server, devices, 2)
    memories = []
    for session in devices:
        session.apply_ack(server.acks[session.device])
        memories.append(session.state.q.double())
    torch.testing.assert_close(server.state.q_bar, sum(memories) / 2, rtol=1e-6, atol=1e-6)


def test_reference_models_are_saved_only_with_differences():
    for downlink_error in (0.0, 0.5):
        server, devices = (
            server_of("aquila", downlink_error=downlink_error),
            [device_of("aquila", m) for m in range(2)]
        )  # fmt: skip
        late = server.open_round()[0]
        run_rounds(server, devices, 2)
        devices[0].handle(late)
        other, again = device_of("aquila"), server_of("aquila", downlink_error=downlink_error)
        restore_device(other, device_to_bytes(devices[0]))
        restore_server(again, server_to_bytes(server))
        assert [m.checksum for m in other._references()] == [
            m.checksum for m in devices[0]._references()
        ]
        assert len(other._references()) == (2 if downlink_error else 0)
        assert len(again.references) == (1 if downlink_error else 0)
        assert again.open_round() == server.open_round()


def test_references_of_another_fleet_are_rejected():
    server, devices = (
        server_of("fedsgd", downlink_error=0.5), [device_of("fedsgd", m) for m in range(2)]
    )  # fmt: skip
    run_rounds(server, devices, 1)
    server.references = {0: replace(server.references[0], theta=torch.zeros(3))}
    with pytest.raises(SavedStateError, match=r"reference\.0 has shape \(3,\), not \(25,\)"):
        restore_server(server_of("fedsgd", downlink_error=0.5), server_to_bytes(server))
