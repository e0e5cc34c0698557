"""No memory is ever counted twice, whatever is lost, doubled, delayed, forgotten or put back."""

import random
from typing import ClassVar

import pytest
import torch
from fault_harness import FaultHarness
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

import aquila
from aquila.core.envelope import Flag, Kind, flags_of, kind_of
from aquila.core.packet import WireError
from aquila.methods.parts.memory import MemoryServer
from aquila.runtime import reference as reference_module
from aquila.runtime import server as server_module
from aquila.runtime.archive import MemoryArchive
from aquila.runtime.messages import NO_ACK, Ack
from aquila.runtime.session import DeviceSession
from aquila.sim.oracle import as_shard
from helpers.problems import ridge

DEPTH = 5
DIFFERENCES = {"downlink_error": 0.7, "dimension": 16}  # such that a difference is worth sending


@pytest.fixture(autouse=True)
def _silence_log(caplog):
    caplog.set_level("ERROR", "aquila")  # a sentence for each of ten thousands of fresh starts


# ---- every sequence of events up to a depth: device 0 suffers them, device 1 is left alone ----


def run_round(harness, answer):
    """Run a round in which device 0 does as it is told and device 1 as it should."""
    answer(harness, harness.order(0))
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
    """All that was ever sent comes again between the order and the reply to it."""
    network = harness.networks[0]
    orders, replies = list(network.orders), list(network.replies)
    frame = harness.handle(0, order)
    for late in orders[-4:]:
        harness.handle(0, late)
    for late in replies[-4:]:
        harness.receive(0, late)
    harness.receive(0, frame)


def computed_twice(harness, order):
    """The device loses its file after it replied, and computes another reply to the same order."""
    frame = harness.handle(0, order)
    harness.restart_device(0, harness.backups[0][-2] if len(harness.backups[0]) > 1 else None)
    assert harness.receive(0, frame)
    assert not harness.receive(0, harness.handle(0, order))


def device_forgets(harness):
    harness.restart_device(0)


def device_put_back(harness):
    harness.restart_device(0, harness.backups[0][-2])


def server_restarts(harness):
    harness.receive(0, harness.handle(0, harness.order(0)))
    harness.restart_server(-1)


def server_put_back(harness):
    harness.restart_server(harness.server.round - 1)


def server_put_back_far(harness):
    harness.restart_server(0)


ROUND_FAULTS = (no_fault, order_lost, reply_lost, everything_replayed, computed_twice)


def disturbances(harness):
    """Return what can happen between rounds, once if it comes to the same."""
    yield server_restarts
    if harness.backups[0]:
        yield device_forgets
    if len(harness.backups[0]) > 1:
        yield device_put_back
    if harness.server.round > 0:
        yield server_put_back
    if harness.server.round > 1:
        yield server_put_back_far


def explore(harness, depth, disturbed=False):
    """Go through all sequences of rounds, with at most one disturbance between two of them."""
    if depth == 0:
        return 1
    seen = 0
    for fault in ROUND_FAULTS:
        after = harness.copy()
        run_round(after, fault)
        seen += 1 + explore(after, depth - 1)
    for disturbance in () if disturbed or depth == 1 else disturbances(harness):
        after = harness.copy()
        disturbance(after)
        seen += 1 + explore(after, depth - 1, disturbed=True)
    return seen


def test_every_sequence_of_events_keeps_memories_consistent():
    assert explore(FaultHarness(files=False), DEPTH) > 30_000


def test_every_sequence_with_differences_keeps_memories_consistent():
    assert explore(FaultHarness(files=False, **DIFFERENCES), DEPTH - 1) > 3_000


@pytest.mark.parametrize("downlink_error", [{}, DIFFERENCES])
def test_sequences_of_events_with_files_keep_memories_consistent(downlink_error):
    explore(FaultHarness(files=True, **downlink_error), 3)


# ---- the checks above can fail: each of these breaks one rule of the protocol ----


def without_forgetting(patch):
    patch.setattr(MemoryServer, "forget", lambda self, state, fleet, device, replies: state)


def without_the_flag(patch):
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


def without_cutting_the_archive(patch):
    patch.setattr(MemoryArchive, "rewind", lambda self, round_number: None)


def without_asking_for_the_whole_history(patch):
    def partial(archive, device, ack, round_number):
        return archive.replies(device)

    patch.setattr(server_module, "reply_history", partial)


BREACHES = (
    without_forgetting, without_the_flag, without_the_order_in_the_reply,
    without_content_in_acknowledgements, without_cutting_the_archive,
    without_asking_for_the_whole_history,
)  # fmt: skip


@pytest.mark.parametrize("breach", BREACHES)
def test_the_check_finds_every_breach_of_the_protocol(breach, monkeypatch):
    breach(monkeypatch)
    with pytest.raises(AssertionError):
        explore(FaultHarness(files=False), DEPTH)


def test_a_difference_added_to_another_model_shows_too(monkeypatch):
    monkeypatch.setattr(
        reference_module, "base_of", lambda model, references: next(iter(references), None)
    )
    with pytest.raises(AssertionError):
        explore(FaultHarness(files=False, **DIFFERENCES), DEPTH - 1)


# ---- longer runs, any message and any file at any time, to any device ----

some_device = st.integers(0, 2)
some_place = st.integers(0, 10**6)


def item_at(items, place):
    return items[place % len(items)] if items else None


class RandomHistory(RuleBasedStateMachine):
    """Messages of all times in any order, machines that fail at any time."""

    options: ClassVar = {}

    def __init__(self):
        super().__init__()
        self.harness = FaultHarness(devices=4, **self.options)  # a power of two: averages are exact

    @rule(m=some_device)
    def order_arrives(self, m):
        self.harness.handle(m, self.harness.order(m))

    @rule(m=some_device)
    def order_and_reply_arrive(self, m):
        frame = self.harness.handle(m, self.harness.order(m))
        already = m in self.harness.server._replies
        assert self.harness.receive(m, frame) is not already

    @rule(m=some_device, place=some_place)
    def order_of_any_time_arrives(self, m, place):
        order = item_at(self.harness.networks[m].orders, place)
        if order is not None:
            self.harness.handle(m, order)

    @rule(m=some_device, place=some_place)
    def reply_of_any_time_arrives(self, m, place):
        frame = item_at(self.harness.networks[m].replies, place)
        if frame is not None:
            self.harness.receive(m, frame)

    @rule()
    def round_is_closed(self):
        self.harness.close()

    @rule(m=some_device)
    def device_restarts_with_its_file(self, m):
        kept = self.harness.backups[m]
        self.harness.restart_device(m, kept[-1] if kept else None)

    @rule(m=some_device)
    def device_restarts_without_a_file(self, m):
        self.harness.restart_device(m)

    @rule(m=some_device, place=some_place)
    def device_restarts_with_a_backup(self, m, place):
        self.harness.restart_device(m, item_at(self.harness.backups[m], place))

    @rule(place=some_place)
    def server_restarts(self, place):
        self.harness.restart_server(place % len(self.harness.checkpoints))

    @rule()
    def server_restarts_from_its_last_checkpoint(self):
        self.harness.restart_server(-1)

    def teardown(self):
        self.harness.check()
        self.harness.close()
        run_round_without_faults(self.harness)
        assert not any(
            flags_of(frame) & Flag.REFUSED for frame in run_round_without_faults(self.harness)
        )


def run_round_without_faults(harness):
    """Run a round in which nothing goes wrong and return its replies."""
    frames = [harness.handle(m, harness.order(m)) for m in range(len(harness.devices))]
    assert all(harness.receive(m, frame) for m, frame in enumerate(frames))
    harness.close()
    return frames


class RandomHistoryWithDifferences(RandomHistory):
    """The same, with models that come as differences."""

    options: ClassVar = DIFFERENCES


LONG = settings(max_examples=150, stateful_step_count=40, deadline=None)
RandomHistory.TestCase.settings = RandomHistoryWithDifferences.TestCase.settings = LONG
test_random_histories_keep_memories_consistent = RandomHistory.TestCase
test_random_histories_with_differences_keep_memories_consistent = (
    RandomHistoryWithDifferences.TestCase
)


# ---- the methods themselves ----

PROBLEM = ridge(devices=3, dimension=16)
METHODS = {"aquila": {"b_min": 2}, "lag": {}, "laq": {}, "ladaq": {}, "lena": {"bits": 6}}


def disturbed_run(name, seed, steps, downlink_error=0.0):
    method = aquila.create(name, alpha=0.5 / PROBLEM.smoothness(), **METHODS[name])
    shards = [as_shard(local) for local in PROBLEM.devices]
    machine = RandomHistory()
    machine.harness = FaultHarness(
        3, method, shards, PROBLEM.dimension, exact=False, downlink_error=downlink_error
    )
    rng = random.Random(seed)
    likely = (machine.order_and_reply_arrive, machine.order_arrives)
    seldom = (
        machine.order_of_any_time_arrives, machine.reply_of_any_time_arrives,
        machine.device_restarts_with_a_backup,
    )  # fmt: skip
    for _ in range(steps):
        for m in range(3):
            rng.choice(likely)(m=m)
            if rng.random() < 0.3:
                rng.choice(seldom)(m=m, place=rng.randrange(10**6))
            if rng.random() < 0.1:
                machine.device_restarts_without_a_file(m=m)
        machine.round_is_closed()
        if rng.random() < 0.1:
            machine.server_restarts(place=rng.randrange(10**6))
    return machine.harness


@pytest.mark.parametrize("downlink_error", [0.0, 0.5])
@pytest.mark.parametrize("name", METHODS)
def test_methods_keep_memories_consistent(name, downlink_error):
    for seed in range(4):
        disturbed_run(name, seed, steps=25, downlink_error=downlink_error)


@pytest.mark.parametrize("name", METHODS)
def test_a_device_that_begins_late_or_anew_uploads_first(name):
    """It may not stay silent by a rule that compares with a memory the server does not have."""
    harness = disturbed_run(name, seed=1, steps=12)
    harness.restart_device(2)
    frame = harness.handle(2, harness.order(2))
    assert harness.devices[2]._stale_turn.reply.fresh
    assert harness.devices[2]._stale_turn.reply.vector is not None
    assert harness.receive(2, frame)
    harness.close()


def test_a_history_that_is_not_whole_is_refused():
    harness = FaultHarness()
    for _ in range(3):
        run_round(harness, no_fault)
    harness.archive._frames[0].pop()
    harness.restart_device(0)
    frame = harness.handle(0, harness.order(0))
    with pytest.raises(WireError, match="does not end with its reply to round 2"):
        harness.server.receive(0, frame)


def test_a_disk_that_fails_while_a_round_is_closed_leaves_the_round_open(monkeypatch):
    harness = FaultHarness()
    run_round(harness, no_fault)
    for m in range(2):
        harness.receive(m, harness.handle(m, harness.order(m)))
    append, calls = MemoryArchive.append, []

    def failing(self, device, frame):
        if device == 1 and not calls:
            calls.append(device)
            raise OSError("no space left on device")
        append(self, device, frame)

    monkeypatch.setattr(MemoryArchive, "append", failing)
    with pytest.raises(OSError, match="no space"):
        harness.close()
    assert harness.server.round == 1
    harness.close()
    assert [len(harness.archive.replies(m)) for m in range(2)] == [2, 2]
    harness.restart_device(0)
    run_round(harness, no_fault)


def test_acknowledgements_of_nothing_and_of_a_reply_are_told_apart():
    assert Ack() == NO_ACK != Ack(0, 0)


def test_who_replied_to_the_last_round_gets_a_difference_and_nobody_else():
    harness = FaultHarness(devices=4, **DIFFERENCES)
    run_round_without_faults(harness)
    kinds = []
    for _ in range(3):  # device 0 is reached but not heard, device 1 not reached in round 1
        orders = [harness.order(m) for m in range(4)]
        kinds.append([kind_of(order.model) == Kind.DENSE for order in orders])
        heard = range(2 if harness.server.round == 1 else 0, 4)
        assert all(harness.receive(m, harness.handle(m, orders[m])) for m in heard)
        assert len({id(orders[m].model) for m in heard}) == 1 + (len(set(kinds[-1])) > 1)
        if harness.server.round == 1:
            harness.handle(0, orders[0])
        harness.close()
    assert kinds == [[False] * 4, [True, True, False, False], [False] * 4]


def test_a_device_without_the_model_sits_out_and_is_sent_one(caplog):
    caplog.set_level("WARNING", "aquila")
    harness = FaultHarness(devices=4, **DIFFERENCES)
    run_round_without_faults(harness)
    before = harness.server.theta
    harness.restart_device(0)
    frames = run_round_without_faults(harness)
    assert [flags_of(frame) & Flag.REFUSED for frame in frames] == [Flag.REFUSED, 0, 0, 0]
    assert "device 0 sits out round 1: the order is a difference to a model" in caplog.text
    assert not torch.equal(harness.server.theta, before)
    assert kind_of(harness.order(0).model) == Kind.DENSE
    assert kind_of(harness.order(1).model) != Kind.DENSE
    assert not any(flags_of(frame) & Flag.REFUSED for frame in run_round_without_faults(harness))
