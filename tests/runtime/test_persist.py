"""Sessions through files: the same bits afterwards, and nothing from a file that is not theirs."""

import os
import stat
from dataclasses import replace

import pytest
import torch

import aquila
from aquila.core.state import to_arrays
from aquila.runtime.archive import FolderArchive
from aquila.runtime.files import atomic_file, atomic_write
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
from aquila.runtime.session import DeviceSession, ServerSession
from aquila.sim.oracle import as_shard
from helpers.problems import ridge

D = 25
PROBLEM = ridge(devices=2, dimension=D)

every_method = pytest.mark.parametrize("name", aquila.METHODS)


def server_of(name, archive=None, downlink_error=0.0):
    method, theta = aquila.create(name, alpha=0.1), torch.zeros(D)
    return ServerSession(
        method,
        theta,
        aquila.Fleet.uniform(D, 2),
        seed=0,
        archive=archive,
        downlink_error=downlink_error,
    )


def device_of(name, m=0):
    method = aquila.create(name, alpha=0.1)
    return DeviceSession(method, m, as_shard(PROBLEM.devices[m]), torch.zeros(D), seed=0)


def run_rounds(server, devices, rounds):
    for _ in range(rounds):
        for m, order in server.open_round().items():
            server.receive(m, devices[m].handle(order))
        server.close_round()


@every_method
@pytest.mark.parametrize("downlink_error", [0.0, 0.5])
def test_a_run_in_which_everybody_restarts_all_the_time_has_the_same_bits(
    name, downlink_error, tmp_path
):
    uninterrupted, restarted = (server_of(name, downlink_error=downlink_error) for _ in range(2))
    devices, again = [[device_of(name, m) for m in range(2)] for _ in range(2)]
    for _ in range(5):
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


def test_a_stale_turn_is_saved_too():
    server, devices = server_of("aquila"), [device_of("aquila", m) for m in range(2)]
    late = server.open_round()[0]
    run_rounds(server, devices, 2)
    order = server.open_round()[0]
    replies = devices[0].handle(order), devices[0].handle(late)
    other = device_of("aquila")
    restore_device(other, device_to_bytes(devices[0]))
    assert (other.handle(order), other.handle(late)) == replies


def test_no_file_is_no_state(tmp_path):
    assert not load_device(tmp_path / "none", device_of("aquila"))
    assert not load_server(tmp_path / "none", server_of("aquila"))


def test_files_belong_to_their_owner_and_leave_nothing_beside_them(tmp_path):
    save_device(tmp_path / "device", device_of("aquila"))
    save_device(tmp_path / "device", device_of("aquila"))
    assert [path.name for path in tmp_path.iterdir()] == ["device"]
    if os.name == "posix":
        assert stat.S_IMODE((tmp_path / "device").stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    atomic_write(tmp_path / "file", b"old")

    def fail():
        with atomic_file(tmp_path / "file") as file:
            file.write(b"new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (tmp_path / "file").read_bytes() == b"old"


def used_device():
    server, devices = server_of("aquila"), [device_of("aquila", m) for m in range(2)]
    run_rounds(server, devices, 2)
    devices[0].handle(server.open_round()[0])
    return server, devices[0]


@pytest.mark.parametrize("seed", range(3))
def test_any_damage_is_noticed(seed):
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


def test_files_of_others_are_named():
    server, device = used_device()
    content = device_to_bytes(device)
    with pytest.raises(SavedStateError, match=r"it is of device 0 of .*, not of device 1"):
        restore_device(device_of("aquila", 1), content)
    with pytest.raises(SavedStateError, match="Laq"):
        restore_device(device_of("laq"), content)
    with pytest.raises(SavedStateError, match="not of server"):
        restore_server(server_of("aquila"), content)
    with pytest.raises(SavedStateError, match="does not start with AQST"):
        restore_device(device, b"PK" + content)
    with pytest.raises(SavedStateError, match="version 9"):
        restore_server(server, content[:4] + b"\x09" + content[5:])


def test_a_device_starts_anew_on_a_server_with_a_folder(tmp_path):
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


def test_models_of_differences_are_saved_by_both_sides_only_where_needed():
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


def test_references_of_another_fleet_are_refused():
    server, devices = (
        server_of("fedsgd", downlink_error=0.5), [device_of("fedsgd", m) for m in range(2)]
    )  # fmt: skip
    run_rounds(server, devices, 1)
    server.references = {0: replace(server.references[0], theta=torch.zeros(3))}
    with pytest.raises(SavedStateError, match=r"the saved reference\.0 is \(3,\)"):
        restore_server(server_of("fedsgd", downlink_error=0.5), server_to_bytes(server))
