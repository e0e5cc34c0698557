"""Histories of devices: any damage is refused, their size is bounded, restarts are limited."""

import tracemalloc

import pytest
import torch
from session_pair import METHODS_WITH_MEMORY

import aquila
from aquila.core.method import server_memory
from aquila.core.packet import WireError
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.persist import restore_server, server_to_bytes
from aquila.runtime.reply_archive import FolderArchive
from aquila.runtime.restart_limit import RestartLimit, Restarts
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import as_shard
from helpers.memory_archive import MemoryArchive

REFUSED = (
    "device 0 restarts from its initial state, but the archive of its earlier replies is "
    "incomplete or damaged, so the server cannot subtract them"
)


@pytest.fixture(autouse=True)
def _silence_log(caplog):
    caplog.set_level("ERROR", "aquila")


class Pair:
    """Two devices and a server with an archive, whose replies all arrive."""

    def __init__(self, archive, name="laq", dimension=2, min_fold_bytes=None, dtype=torch.float32):
        self.archive, self.min_fold_bytes = archive, min_fold_bytes
        self.method = aquila.create(name, alpha=0.1, **METHODS_WITH_MEMORY.get(name, {}))
        self.theta = torch.zeros(dimension, dtype=dtype)
        self.server = self.new_server()
        self.devices = [self.new_device(m) for m in range(2)]

    def new_server(self):
        fleet = aquila.Fleet.uniform(self.theta.numel(), 2)
        server = ServerSession(self.method, self.theta, fleet, seed=0, archive=self.archive)
        if self.min_fold_bytes is not None:
            server.histories.min_fold_bytes = self.min_fold_bytes
        return server

    def new_device(self, m):
        target = torch.linspace(m - 1, m + 1, self.theta.numel(), dtype=self.theta.dtype)
        shard = as_shard(lambda theta: (1.0, theta - target))
        return DeviceSession(self.method, m, shard, self.theta, seed=0)

    def restart_device(self, m=0):
        self.devices[m] = self.new_device(m)

    def restart_server(self):
        saved, self.server = server_to_bytes(self.server), self.new_server()
        restore_server(self.server, saved)

    def run(self, rounds=1):
        for _ in range(rounds):
            for m, order in self.server.open_round().items():
                self.server.receive(m, self.devices[m].handle(order))
            self.server.close_round()

    def assert_consistent(self):
        memories = []
        for session in self.devices:
            session.apply_ack(self.server.acks[session.device])
            memories.append(session.half.memory(session.state).double())
        q_bar = server_memory(self.server.half).memory(self.server.state)
        torch.testing.assert_close(q_bar, sum(memories) / 2, rtol=1e-5, atol=1e-6)


def file_of(folder):
    (path,) = folder.glob("0-*.frames")
    return path


@pytest.mark.parametrize("fold", [False, True])
def test_every_flipped_bit_and_every_cut_is_refused(tmp_path, fold):
    pair = Pair(FolderArchive(tmp_path), min_fold_bytes=60 if fold else None)
    pair.run(3)
    histories = pair.server.histories
    pair.archive.keep_only({(m, position.part) for m, position in enumerate(histories.positions)})
    path = file_of(tmp_path)
    whole, is_folded = path.read_bytes(), not path.name.startswith("0-0")
    assert is_folded is fold
    histories.check_restart(0, 3)
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(damaged))
        with pytest.raises(WireError, match=REFUSED):
            histories.check_restart(0, 3)
        if bit % 8 == 0:
            with pytest.raises(WireError, match=REFUSED):
                histories.subtract(pair.server.state, 0)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(WireError, match=REFUSED):
            histories.check_restart(0, 3)


def lose_one_file(folder):
    file_of(folder).unlink()


def lose_all_files(folder):
    for path in folder.iterdir():
        path.unlink()


def lose_the_end(folder):
    path = file_of(folder)
    path.write_bytes(path.read_bytes()[:-30])


def lose_all_but_the_end(folder):
    """The file that an archive without the check would have begun anew."""
    path = file_of(folder)
    content = path.read_bytes()
    path.write_bytes(bytes(8) + content[-(len(content) - 8) // 3 :])


@pytest.mark.parametrize("restarts_server", [False, True])
@pytest.mark.parametrize(
    "damage", [lose_one_file, lose_all_files, lose_the_end, lose_all_but_the_end]
)
def test_archive_that_lost_replies_is_refused_after_further_rounds(
    tmp_path, damage, restarts_server, caplog
):
    caplog.set_level("WARNING", "aquila")
    pair = Pair(FolderArchive(tmp_path))
    pair.run(3)
    damage(tmp_path)
    if restarts_server:
        pair.restart_server()
        assert 0 in pair.server.histories.incomplete_devices()
    pair.run(2)
    if restarts_server:
        assert "the archive of device 0 is incomplete or damaged; from now on" in caplog.text
    pair.assert_consistent()
    pair.restart_server()
    pair.restart_device()
    order = pair.server.open_round()[0]
    with pytest.raises(WireError, match=REFUSED):
        pair.server.receive(0, pair.devices[0].handle(order))


@pytest.mark.parametrize("name", METHODS_WITH_MEMORY)
def test_folded_history_subtracts_the_same(name):
    plain, folded = Pair(MemoryArchive(), name, 40), Pair(MemoryArchive(), name, 40, 0)
    for pair in (plain, folded):
        pair.run(30)
        pair.restart_device()
        pair.run(2)
        pair.restart_device(1)
        pair.run(3)
        pair.assert_consistent()
    assert plain.server.histories.positions[1].part == 1  # only the restart began a part
    assert folded.server.histories.positions[1].part > 2
    torch.testing.assert_close(plain.server.theta, folded.server.theta, rtol=1e-5, atol=1e-6)


def test_parts_take_bounded_space(tmp_path):
    dimension = 300
    pair = Pair(FolderArchive(tmp_path), "ef21_sgdm", dimension, min_fold_bytes=0)
    memory, largest = 4 * dimension, 0
    for _ in range(90):
        pair.run()
        positions = pair.server.histories.positions
        pair.archive.keep_only({(m, position.part) for m, position in enumerate(positions)})
        largest = max(largest, file_of(tmp_path).stat().st_size)
    frame = 4 * dimension + 100
    assert memory < largest < 2 * memory + frame
    assert positions[0].part > 2
    pair.restart_device()
    pair.run()
    pair.assert_consistent()


def test_history_is_subtracted_in_bounded_memory(tmp_path):
    dimension, peaks = 100_000, []
    pair = Pair(FolderArchive(tmp_path), "lag", dimension, min_fold_bytes=10**9)
    for rounds in (2, 10):
        pair.run(rounds)
        tracemalloc.start()
        pair.server.histories.check_restart(0, pair.server.round)
        pair.server.histories.subtract(pair.server.state, 0)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    frame = 4 * dimension
    assert frame < peaks[1] < peaks[0] + frame / 4


def test_device_that_restarts_every_round_is_slowed_down():
    pair = Pair(MemoryArchive())
    pair.run()
    accepted, refused, errors = [], [], []
    for round_number in range(1, 201):
        pair.restart_device()
        orders = pair.server.open_round()
        pair.server.receive(1, pair.devices[1].handle(orders[1]))
        try:
            if 0 in orders:  # a device that must wait does not compute
                pair.server.receive(0, pair.devices[0].handle(orders[0]))
                accepted.append(round_number)
        except WireError as error:
            refused.append(round_number)
            errors.append(str(error))
        pair.server.close_round()
        pair.restart_server()
    assert accepted == [1, 2, 3, 5, 9, 17, 33, 65, 129, 193]
    assert refused == [4, 6, 10, 18, 34, 66, 130, 194]
    assert errors[0] == (
        "device 0 has restarted from its initial state 3 times in close succession; the server "
        "accepts its next restart in round 5"
    )


def test_earlier_restarts_are_forgotten_after_a_quiet_time():
    limit = RestartLimit(free=2, longest_wait=8)
    restarts = Restarts()
    for round_number in (1, 2, 4, 8, 16):
        limit.check(5, restarts, round_number)
        restarts = limit.after(restarts, round_number)
    assert restarts == (5, 16)
    with pytest.raises(WireError, match=r"device 5 .* accepts its next restart in round 24"):
        limit.check(5, restarts, 23)
    assert limit.after(restarts, 31) == (6, 31)
    assert limit.after(restarts, 32) == (1, 32)
