"""No memory is ever counted twice, whatever is lost, doubled, delayed, forgotten or put back."""

import random
from typing import ClassVar

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from world import World

import aquila
from aquila.core.envelope import Flag, Kind, flags_of, kind_of
from aquila.core.packet import WireError
from aquila.methods.memory import MemoryServer
from aquila.runtime import held as held_module
from aquila.runtime import server as server_module
from aquila.runtime.archive import MemoryArchive
from aquila.runtime.messages import NOTHING, Ack
from aquila.runtime.session import DeviceSession
from aquila.sim.oracle import as_shard
from problems import ridge

DEPTH = 5
DIFFERENCES = {"downlink": 0.7, "dimension": 16}  # such that a difference is worth sending


@pytest.fixture(autouse=True)
def _quietly(caplog):
    caplog.set_level("ERROR", "aquila")  # a sentence for each of ten thousands of fresh starts


# ---- every sequence of events up to a depth: device 0 suffers them, device 1 is left alone ----


def play(world, answer):
    """Run a round in which device 0 does as it is told and device 1 as it should."""
    answer(world, world.order(0))
    assert world.receive(1, world.handle(1, world.order(1)))
    world.close()


def all_is_well(world, order):
    frame = world.handle(0, order)
    assert world.handle(0, order) == frame
    assert world.receive(0, frame)
    assert not world.receive(0, frame)


def order_lost(world, order):
    pass


def reply_lost(world, order):
    world.handle(0, order)


def everything_again(world, order):
    """All that was ever sent comes again between the order and the reply to it."""
    network = world.networks[0]
    orders, replies = list(network.orders), list(network.replies)
    frame = world.handle(0, order)
    for late in orders[-4:]:
        world.handle(0, late)
    for late in replies[-4:]:
        world.receive(0, late)
    world.receive(0, frame)


def computed_twice(world, order):
    """The device loses its file after it replied, and computes another reply to the same order."""
    frame = world.handle(0, order)
    world.restart_device(0, world.backups[0][-2] if len(world.backups[0]) > 1 else None)
    assert world.receive(0, frame)
    assert not world.receive(0, world.handle(0, order))


def device_forgets(world):
    world.restart_device(0)


def device_put_back(world):
    world.restart_device(0, world.backups[0][-2])


def server_restarts(world):
    world.receive(0, world.handle(0, world.order(0)))
    world.restart_server(-1)


def server_put_back(world):
    world.restart_server(world.server.round - 1)


def server_put_back_far(world):
    world.restart_server(0)


ROUNDS = (all_is_well, order_lost, reply_lost, everything_again, computed_twice)


def disturbances(world):
    """Return what can happen between rounds, once if it comes to the same."""
    yield server_restarts
    if world.backups[0]:
        yield device_forgets
    if len(world.backups[0]) > 1:
        yield device_put_back
    if world.server.round > 0:
        yield server_put_back
    if world.server.round > 1:
        yield server_put_back_far


def explore(world, depth, disturbed=False):
    """Go through all sequences of rounds, with at most one disturbance between two of them."""
    if depth == 0:
        return 1
    seen = 0
    for round in ROUNDS:
        after = world.copy()
        play(after, round)
        seen += 1 + explore(after, depth - 1)
    for disturbance in () if disturbed or depth == 1 else disturbances(world):
        after = world.copy()
        disturbance(after)
        seen += 1 + explore(after, depth - 1, disturbed=True)
    return seen


def test_every_sequence_of_events_keeps_the_books():
    assert explore(World(files=False), DEPTH) > 30_000


def test_every_sequence_of_events_keeps_the_books_of_differences_too():
    assert explore(World(files=False, **DIFFERENCES), DEPTH - 1) > 3_000


@pytest.mark.parametrize("downlink", [{}, DIFFERENCES])
def test_files_and_sequences_of_events_keep_the_books(downlink):
    explore(World(files=True, **downlink), 3)


# ---- the checks above can fail: each of these breaks one rule of the protocol ----


def without_forgetting(patch):
    patch.setattr(MemoryServer, "forget", lambda self, state, fleet, device, replies: state)


def without_the_flag(patch):
    patch.setattr(server_module.ServerSession, "_starts_anew", lambda *_: False)


def without_the_order_in_the_reply(patch):
    patch.setattr(server_module.ServerSession, "_is_answered_by", lambda *_: True)


def without_content_in_acknowledgements(patch):
    def by_round(self, ack):
        for turn in self._turns():
            if turn.name is not None and turn.name.round == ack.round:
                return turn.turn.state
        return self.state if ack.round == self.acked.round else None

    patch.setattr(DeviceSession, "_state_behind", by_round)


def without_cutting_the_archive(patch):
    patch.setattr(MemoryArchive, "rewind", lambda self, round: None)


def without_asking_for_the_whole_history(patch):
    def partial(archive, device, ack, round):
        return archive.replies(device)

    patch.setattr(server_module, "history", partial)


BREACHES = (
    without_forgetting, without_the_flag, without_the_order_in_the_reply,
    without_content_in_acknowledgements, without_cutting_the_archive,
    without_asking_for_the_whole_history,
)  # fmt: skip


@pytest.mark.parametrize("breach", BREACHES)
def test_the_books_show_every_breach_of_the_protocol(breach, monkeypatch):
    breach(monkeypatch)
    with pytest.raises(AssertionError):
        explore(World(files=False), DEPTH)


def test_a_difference_added_to_another_model_shows_too(monkeypatch):
    monkeypatch.setattr(held_module, "base_of", lambda model, held: next(iter(held), None))
    with pytest.raises(AssertionError):
        explore(World(files=False, **DIFFERENCES), DEPTH - 1)


# ---- longer runs, any message and any file at any time, to any device ----

some_device = st.integers(0, 2)
some_place = st.integers(0, 10**6)


def pick(items, place):
    return items[place % len(items)] if items else None


class AnyHistory(RuleBasedStateMachine):
    """Messages of all times in any order, machines that fail at any time."""

    options: ClassVar = {}

    def __init__(self):
        super().__init__()
        self.world = World(devices=4, **self.options)  # a power of two: averages are exact

    @rule(m=some_device)
    def order_arrives(self, m):
        self.world.handle(m, self.world.order(m))

    @rule(m=some_device)
    def order_and_reply_arrive(self, m):
        frame = self.world.handle(m, self.world.order(m))
        already = m in self.world.server._replies
        assert self.world.receive(m, frame) is not already

    @rule(m=some_device, place=some_place)
    def order_of_any_time_arrives(self, m, place):
        order = pick(self.world.networks[m].orders, place)
        if order is not None:
            self.world.handle(m, order)

    @rule(m=some_device, place=some_place)
    def reply_of_any_time_arrives(self, m, place):
        frame = pick(self.world.networks[m].replies, place)
        if frame is not None:
            self.world.receive(m, frame)

    @rule()
    def round_is_closed(self):
        self.world.close()

    @rule(m=some_device)
    def device_restarts_with_its_file(self, m):
        kept = self.world.backups[m]
        self.world.restart_device(m, kept[-1] if kept else None)

    @rule(m=some_device)
    def device_restarts_without_a_file(self, m):
        self.world.restart_device(m)

    @rule(m=some_device, place=some_place)
    def device_restarts_with_a_backup(self, m, place):
        self.world.restart_device(m, pick(self.world.backups[m], place))

    @rule(place=some_place)
    def server_restarts(self, place):
        self.world.restart_server(place % len(self.world.checkpoints))

    @rule()
    def server_restarts_from_its_last_checkpoint(self):
        self.world.restart_server(-1)

    def teardown(self):
        self.world.check()
        self.world.close()
        play_on(self.world)
        assert not any(flags_of(frame) & Flag.REFUSED for frame in play_on(self.world))


def play_on(world):
    """Run a round in which nothing goes wrong and return its replies."""
    frames = [world.handle(m, world.order(m)) for m in range(len(world.devices))]
    assert all(world.receive(m, frame) for m, frame in enumerate(frames))
    world.close()
    return frames


class AnyHistoryOfDifferences(AnyHistory):
    """The same, with models that come as differences."""

    options: ClassVar = DIFFERENCES


LONG = settings(max_examples=150, stateful_step_count=40, deadline=None)
AnyHistory.TestCase.settings = AnyHistoryOfDifferences.TestCase.settings = LONG
test_any_history_keeps_the_books = AnyHistory.TestCase
test_any_history_keeps_the_books_of_differences_too = AnyHistoryOfDifferences.TestCase


# ---- the methods themselves ----

PROBLEM = ridge(devices=3, dimension=16)
METHODS = {"aquila": {"b_min": 2}, "lag": {}, "laq": {}, "ladaq": {}, "lena": {"bits": 6}}


def disturbed_run(name, seed, steps, downlink=0.0):
    method = aquila.create(name, alpha=0.5 / PROBLEM.smoothness(), **METHODS[name])
    shards = [as_shard(local) for local in PROBLEM.devices]
    machine = AnyHistory()
    machine.world = World(3, method, shards, PROBLEM.dimension, exact=False, downlink=downlink)
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
    return machine.world


@pytest.mark.parametrize("downlink", [0.0, 0.5])
@pytest.mark.parametrize("name", METHODS)
def test_methods_keep_their_books_too(name, downlink):
    for seed in range(4):
        disturbed_run(name, seed, steps=25, downlink=downlink)


@pytest.mark.parametrize("name", METHODS)
def test_a_device_that_begins_late_or_anew_uploads_first(name):
    """It may not stay silent by a rule that compares with a memory the server does not have."""
    world = disturbed_run(name, seed=1, steps=12)
    world.restart_device(2)
    frame = world.handle(2, world.order(2))
    assert world.devices[2]._aside.reply.fresh
    assert world.devices[2]._aside.reply.vector is not None
    assert world.receive(2, frame)
    world.close()


def test_a_history_that_is_not_whole_is_refused():
    world = World()
    for _ in range(3):
        play(world, all_is_well)
    world.archive._frames[0].pop()
    world.restart_device(0)
    frame = world.handle(0, world.order(0))
    with pytest.raises(WireError, match="does not end with its reply to round 2"):
        world.server.receive(0, frame)


def test_a_disk_that_fails_while_a_round_is_closed_leaves_the_round_open(monkeypatch):
    world = World()
    play(world, all_is_well)
    for m in range(2):
        world.receive(m, world.handle(m, world.order(m)))
    append, calls = MemoryArchive.append, []

    def failing(self, device, frame):
        if device == 1 and not calls:
            calls.append(device)
            raise OSError("no space left on device")
        append(self, device, frame)

    monkeypatch.setattr(MemoryArchive, "append", failing)
    with pytest.raises(OSError, match="no space"):
        world.close()
    assert world.server.round == 1
    world.close()
    assert [len(world.archive.replies(m)) for m in range(2)] == [2, 2]
    world.restart_device(0)
    play(world, all_is_well)


def test_acknowledgements_of_nothing_and_of_a_reply_are_told_apart():
    assert Ack() == NOTHING != Ack(0, 0)


def test_who_replied_to_the_last_round_gets_a_difference_and_nobody_else():
    world = World(devices=4, **DIFFERENCES)
    play_on(world)
    kinds = []
    for _ in range(3):  # device 0 is reached but not heard, device 1 not reached in round 1
        orders = [world.order(m) for m in range(4)]
        kinds.append([kind_of(order.model) == Kind.DENSE for order in orders])
        heard = range(2 if world.server.round == 1 else 0, 4)
        assert all(world.receive(m, world.handle(m, orders[m])) for m in heard)
        assert len({id(orders[m].model) for m in heard}) == 1 + (len(set(kinds[-1])) > 1)
        if world.server.round == 1:
            world.handle(0, orders[0])
        world.close()
    assert kinds == [[False] * 4, [True, True, False, False], [False] * 4]


def test_a_device_without_the_model_sits_out_and_is_sent_one(caplog):
    caplog.set_level("WARNING", "aquila")
    world = World(devices=4, **DIFFERENCES)
    play_on(world)
    before = world.server.theta
    world.restart_device(0)
    frames = play_on(world)
    assert [flags_of(frame) & Flag.REFUSED for frame in frames] == [Flag.REFUSED, 0, 0, 0]
    assert "device 0 sits out round 1: the order is a difference to a model" in caplog.text
    assert not torch.equal(world.server.theta, before)
    assert kind_of(world.order(0).model) == Kind.DENSE
    assert kind_of(world.order(1).model) != Kind.DENSE
    assert not any(flags_of(frame) & Flag.REFUSED for frame in play_on(world))
