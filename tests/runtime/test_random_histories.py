"""Random histories of messages, files and checkpoints keep the memories consistent."""

import random
from typing import ClassVar

import pytest
from fault_harness import DIFFERENCES, FaultHarness
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from session_pair import METHODS_WITH_MEMORY

import aquila
from aquila.core.envelope import Flag, flags_of
from aquila.sim.oracle import as_shard
from helpers.problems import ridge


@pytest.fixture(autouse=True)
def _silence_log(caplog):
    caplog.set_level("ERROR", "aquila")  # thousands of restarts log one warning each


some_device = st.integers(0, 2)
some_index = st.integers(0, 10**6)


def item_at(items, index):
    return items[index % len(items)] if items else None


class RandomHistory(RuleBasedStateMachine):
    """Any message arrives at any time in any order, and machines restart at any time."""

    options: ClassVar = {}

    def __init__(self):
        super().__init__()
        # averages over a power of two are exact
        self.harness = FaultHarness(devices=4, **self.options)

    @rule(m=some_device)
    def order_arrives(self, m):
        self.harness.handle(m, self.harness.order(m))

    @rule(m=some_device)
    def order_and_reply_arrive(self, m):
        frame = self.harness.handle(m, self.harness.order(m))
        already = m in self.harness.server._open.received
        assert self.harness.receive(m, frame) is not already

    @rule(m=some_device, index=some_index)
    def any_earlier_order_arrives(self, m, index):
        order = item_at(self.harness.networks[m].orders, index)
        if order is not None:
            self.harness.handle(m, order)

    @rule(m=some_device, index=some_index)
    def any_earlier_reply_arrives(self, m, index):
        frame = item_at(self.harness.networks[m].replies, index)
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

    @rule(m=some_device, index=some_index)
    def device_restarts_with_a_backup(self, m, index):
        self.harness.restart_device(m, item_at(self.harness.backups[m], index))

    @rule(index=some_index)
    def server_restarts_from_any_checkpoint(self, index):
        self.harness.restart_server(index % len(self.harness.checkpoints))

    @rule()
    def server_restarts_from_its_last_checkpoint(self):
        self.harness.restart_server(-1)

    def teardown(self):
        self.harness.check()
        self.harness.close()
        self.harness.run_round_without_faults()
        assert not any(
            flags_of(frame) & Flag.REFUSED for frame in self.harness.run_round_without_faults()
        )


class RandomHistoryWithWeights(RandomHistory):
    """Random histories with weights, whose sum is a power of two, and a server optimizer."""

    options: ClassVar = {
        "weights": [1.0, 4.0, 2.0, 1.0],
        "server_optimizer": "adam",
        "schedule": "warmup:3+linear:20",
    }


class RandomHistoryWithDifferences(RandomHistory):
    """Random histories with models sent as differences."""

    options: ClassVar = DIFFERENCES


LONG = settings(max_examples=50, stateful_step_count=40, deadline=None)
RandomHistory.TestCase.settings = RandomHistoryWithDifferences.TestCase.settings = LONG
RandomHistoryWithWeights.TestCase.settings = LONG
test_random_histories_keep_weighted_memories_consistent = RandomHistoryWithWeights.TestCase
test_random_histories_keep_memories_consistent = RandomHistory.TestCase
test_random_histories_with_differences_keep_memories_consistent = (
    RandomHistoryWithDifferences.TestCase
)


# ---- the same with real methods ----

PROBLEM = ridge(devices=3, dimension=16)


def run_with_faults(name, seed, steps, **options):
    method = aquila.create(name, alpha=0.5 / PROBLEM.smoothness(), **METHODS_WITH_MEMORY[name])
    shards = [as_shard(local) for local in PROBLEM.devices]
    machine = RandomHistory()
    machine.harness = FaultHarness(3, method, shards, PROBLEM.dimension, exact=False, **options)
    rng = random.Random(seed)
    common = (machine.order_and_reply_arrive, machine.order_arrives)
    rare = (
        machine.any_earlier_order_arrives, machine.any_earlier_reply_arrives,
        machine.device_restarts_with_a_backup,
    )  # fmt: skip
    for _ in range(steps):
        for m in range(3):
            rng.choice(common)(m=m)
            if rng.random() < 0.3:
                rng.choice(rare)(m=m, index=rng.randrange(10**6))
            if rng.random() < 0.1:
                machine.device_restarts_without_a_file(m=m)
        machine.round_is_closed()
        if rng.random() < 0.1:
            machine.server_restarts_from_any_checkpoint(index=rng.randrange(10**6))
    return machine.harness


OPTIONS = {
    "plain": {},
    "everything": {
        "weights": [1.0, 20.0, 3.0], "server_optimizer": "yogi", "schedule": "steps:5,9",
        "downlink_error": 0.5,
    },
}  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("name", METHODS_WITH_MEMORY)
def test_methods_keep_memories_consistent(name, options):
    for seed in range(2):
        run_with_faults(name, seed, steps=25, **options)


@pytest.mark.parametrize("name", METHODS_WITH_MEMORY)
def test_restarted_device_uploads_in_its_first_turn(name):
    """A skip rule must not compare with a memory that the server does not have."""
    harness = run_with_faults(name, seed=1, steps=12)
    harness.restart_device(2)
    frame = harness.handle(2, harness.order(2))
    assert harness.devices[2]._stale_turn.reply.fresh
    assert harness.devices[2]._stale_turn.reply.vector is not None
    assert harness.receive(2, frame)
    harness.close()
