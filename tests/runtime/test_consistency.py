"""Every sequence of faults up to a depth keeps the memories of devices and server consistent."""

from itertools import cycle

import pytest
import torch
from fault_harness import DIFFERENCES, FaultHarness

from aquila.core.envelope import Flag, Kind, flags_of, kind_of
from aquila.core.packet import WireError
from aquila.methods.parts.memory import MemoryServer
from aquila.runtime import reference as reference_module
from aquila.runtime import server_session as server_module
from aquila.runtime.device_history import DeviceHistories
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.messages import NO_ACK, Ack
from aquila.runtime.reply_archive import NO_PART, Position
from helpers.memory_archive import MemoryArchive

DEPTH = 5


@pytest.fixture(autouse=True)
def _silence_log(caplog):
    caplog.set_level("ERROR", "aquila")  # tens of thousands of restarts log one warning each


# ---- every sequence of events up to a depth; they happen to device 0, device 1 has no faults ----


def run_round(harness, fault):
    """Run a round in which device 0 has a fault and device 1 has none."""
    fault(harness, harness.order(0))
    assert harness.receive(1, harness.handle(1, harness.order(1)))
    harness.close()


def no_fault(harness, order):
    frame = harness.handle(0, order)
    assert harness.handle(0, order) == frame
    assert harness.receive(0, frame)
    assert not harness.receive(0, frame)


def order_lost(harness, order):
    pass


def reply_lost(harness, order):
    harness.handle(0, order)


def everything_replayed(harness, order):
    """Earlier messages arrive again between the order and the reply to it."""
    network = harness.networks[0]
    orders, replies = list(network.orders), list(network.replies)
    frame = harness.handle(0, order)
    for late in orders[-4:]:
        harness.handle(0, late)
    for late in replies[-4:]:
        harness.receive(0, late)
    harness.receive(0, frame)


def computed_twice(harness, order):
    """The device loses its file after its reply and computes another reply to the same order."""
    frame = harness.handle(0, order)
    harness.restart_device(0, harness.backups[0][-2] if len(harness.backups[0]) > 1 else None)
    assert harness.receive(0, frame)
    assert not harness.receive(0, harness.handle(0, order))


def device_loses_its_file(harness):
    harness.restart_device(0)


def device_restored_from_backup(harness):
    harness.restart_device(0, harness.backups[0][-2])


def server_restarts(harness):
    harness.receive(0, harness.handle(0, harness.order(0)))
    harness.restart_server(-1)


def server_restored_one_round_back(harness):
    harness.restart_server(harness.server.round - 1)


def server_restored_to_the_start(harness):
    harness.restart_server(0)


ROUND_FAULTS = (no_fault, order_lost, reply_lost, everything_replayed, computed_twice)


def disturbances(harness):
    """Yield the faults that can happen between two rounds and differ from each other."""
    yield server_restarts
    if harness.backups[0]:
        yield device_loses_its_file
    if len(harness.backups[0]) > 1:
        yield device_restored_from_backup
    if harness.server.round > 0:
        yield server_restored_one_round_back
    if harness.server.round > 1:
        yield server_restored_to_the_start


def explore(harness, depth, disturbed=False, last=None):
    """Run all sequences of rounds with at most one disturbance between two of them.

    The faults of the last round take turns: each of these sequences ends with one of them.
    """
    last = last or cycle(ROUND_FAULTS)
    if depth == 1:
        run_round(harness, next(last))
        return 1
    seen = 0
    for fault in ROUND_FAULTS:
        after = harness.copy()
        run_round(after, fault)
        seen += 1 + explore(after, depth - 1, last=last)
    for disturbance in () if disturbed else disturbances(harness):
        after = harness.copy()
        disturbance(after)
        seen += 1 + explore(after, depth - 1, disturbed=True, last=last)
    return seen


def test_every_sequence_of_events_keeps_memories_consistent():
    assert explore(FaultHarness(files=False), DEPTH) > 5_000


def test_every_sequence_with_differences_keeps_memories_consistent():
    assert explore(FaultHarness(files=False, **DIFFERENCES), DEPTH - 1) > 500


@pytest.mark.parametrize("downlink_error", [{}, DIFFERENCES])
def test_sequences_of_events_with_files_keep_memories_consistent(downlink_error):
    explore(FaultHarness(files=True, **downlink_error), 3)


# ---- the checks can fail: each function below breaks one rule of the protocol ----


def without_subtracting_history(patch):
    patch.setattr(MemoryServer, "forget", lambda self, state, fleet, device, contributions: state)


def without_the_fresh_flag(patch):
    patch.setattr(server_module.ServerSession, "_is_fresh_start", lambda *_: False)


def without_the_order_in_the_reply(patch):
    patch.setattr(server_module.ServerSession, "_answers_order", lambda *_: True)


def without_content_in_acknowledgements(patch):
    def by_round(self, ack):
        for turn in self._pending_turns():
            if turn.ack is not None and turn.ack.round == ack.round:
                return turn.turn.state
        return self.state if ack.round == self.last_ack.round else None

    patch.setattr(DeviceSession, "_state_for", by_round)


def without_truncating_the_archive(patch):
    patch.setattr(MemoryArchive, "truncate", lambda self, device, part, entries: None)


def without_checking_the_history(patch):
    def all_entries(self, device, position):
        return self.archive.entries(device, position.part)

    patch.setattr(DeviceHistories, "_entries", all_entries)


def without_starting_a_part_at_a_restart(patch):
    append = DeviceHistories._append

    def ignore_restart(self, device, position, frame, start):
        return append(self, device, position, frame, start and position.part == NO_PART)

    patch.setattr(DeviceHistories, "_append", ignore_restart)


def without_the_sum_in_a_folded_part(patch):
    begin = MemoryArchive.begin

    def without_sum(self, device, part, entry):
        begin(self, device, part, bytes(len(entry)))

    patch.setattr(MemoryArchive, "begin", without_sum)
    patch.setattr(Position, "after", lambda self, entry: self._replace(entries=self.entries + 1))


BREACHES = (
    without_subtracting_history, without_the_fresh_flag, without_the_order_in_the_reply,
    without_content_in_acknowledgements, without_starting_a_part_at_a_restart,
    without_the_sum_in_a_folded_part,
)  # fmt: skip


@pytest.mark.parametrize("breach", BREACHES)
def test_breaking_a_rule_of_the_protocol_is_detected(breach, monkeypatch):
    breach(monkeypatch)
    with pytest.raises(AssertionError):
        explore(FaultHarness(files=False), DEPTH)


def reply_computed_again(harness):
    """A server restored by one round gets another reply than the one that the archive has."""
    run_round(harness, no_fault)
    run_round(harness, no_fault)
    harness.restart_server(1)
    harness.restart_device(0, harness.backups[0][0])
    run_round(harness, no_fault)
    harness.restart_device(0)
    run_round(harness, no_fault)


def restart_after_a_restore(harness):
    """The first reply that a restored server gets is of a device that lost its file."""
    run_round(harness, no_fault)
    run_round(harness, no_fault)
    harness.restart_server(1)
    harness.restart_device(0)
    run_round(harness, no_fault)


@pytest.mark.parametrize(
    ("events", "breach"),
    [
        (reply_computed_again, without_truncating_the_archive),
        (restart_after_a_restore, without_checking_the_history),
    ],
)
def test_restored_server_ignores_what_the_archive_has_of_later_rounds(events, breach, monkeypatch):
    harness = FaultHarness()
    events(harness.copy())
    breach(monkeypatch)
    with pytest.raises(AssertionError):
        events(harness)


def test_difference_added_to_another_model_is_detected(monkeypatch):
    monkeypatch.setattr(
        reference_module, "base_of", lambda model, references: next(iter(references), None)
    )
    with pytest.raises(AssertionError):
        explore(FaultHarness(files=False, **DIFFERENCES), DEPTH - 1)


def test_incomplete_history_is_rejected():
    harness = FaultHarness()
    for _ in range(3):
        run_round(harness, no_fault)
    harness.archive.parts[0, harness.server.histories.positions[0].part].pop()
    harness.restart_device(0)
    frame = harness.handle(0, harness.order(0))
    with pytest.raises(WireError, match="the archive of its earlier replies is incomplete"):
        harness.server.receive(0, frame)


def test_device_that_restarts_every_round_stays_consistent():
    harness, accepted = FaultHarness(limits_restarts=True), {}
    for number in range(12):
        if 0 in harness.server.open_round():  # else it waits
            accepted[number] = harness.receive(0, harness.handle(0, harness.order(0)))
        assert harness.receive(1, harness.handle(1, harness.order(1)))
        harness.close()
        harness.restart_device(0)
        harness.restart_server(-1)
    assert list(accepted) == [0, 1, 2, 3, 4, 5, 6, 9, 10]
    assert [number for number, ok in accepted.items() if ok] == [0, 1, 2, 3, 5, 9]


def test_disk_failure_while_closing_a_round_leaves_it_open(monkeypatch):
    harness = FaultHarness()
    run_round(harness, no_fault)
    for m in range(2):
        harness.receive(m, harness.handle(m, harness.order(m)))
    append, calls = MemoryArchive.append, []

    def failing(self, device, part, entry):
        if device == 1 and not calls:
            calls.append(device)
            raise OSError("no space left on device")
        return append(self, device, part, entry)

    monkeypatch.setattr(MemoryArchive, "append", failing)
    with pytest.raises(OSError, match="no space"):
        harness.close()
    assert harness.server.round == 1
    harness.close()
    assert [position.entries for position in harness.server.histories.positions] == [3, 3]
    assert [len(harness.archive.parts[m, 0]) for m in range(2)] == [3, 3]
    harness.restart_device(0)
    run_round(harness, no_fault)


def test_no_acknowledgement_differs_from_that_of_any_reply():
    assert Ack() == NO_ACK != Ack(0, 0)


def test_only_devices_that_replied_to_the_last_round_get_a_difference():
    harness = FaultHarness(devices=10, **DIFFERENCES)
    harness.run_round_without_faults()
    kinds = []
    for _ in range(3):  # in round 1 the reply of device 0 and the order to device 1 are lost
        orders = [harness.order(m) for m in range(10)]
        kinds.append([kind_of(order.model) == Kind.DENSE for order in orders])
        replying = range(2 if harness.server.round == 1 else 0, 10)
        assert all(harness.receive(m, harness.handle(m, orders[m])) for m in replying)
        assert len({id(orders[m].model) for m in replying}) == 1 + (len(set(kinds[-1])) > 1)
        if harness.server.round == 1:
            harness.handle(0, orders[0])
        harness.close()
    assert kinds == [[False] * 10, [True, True] + [False] * 8, [False] * 10]


def test_device_without_the_base_refuses_and_then_gets_a_whole_model(caplog):
    caplog.set_level("WARNING", "aquila")
    harness = FaultHarness(devices=8, **DIFFERENCES)
    harness.run_round_without_faults()
    before = harness.server.theta
    harness.restart_device(0)
    frames = harness.run_round_without_faults()
    assert [flags_of(frame) & Flag.REFUSED for frame in frames] == [Flag.REFUSED, *[0] * 7]
    assert "device 0 refuses round 1: the order is a difference to a model" in caplog.text
    assert not torch.equal(harness.server.theta, before)
    assert kind_of(harness.order(0).model) == Kind.DENSE
    assert kind_of(harness.order(1).model) != Kind.DENSE
    assert not any(flags_of(frame) & Flag.REFUSED for frame in harness.run_round_without_faults())
