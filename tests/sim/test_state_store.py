"""States in a mapped file keep their values, and no file is left behind."""

import gc
import os
from dataclasses import dataclass, replace

import pytest
import torch

import aquila
from aquila.core.fleet import Fleet
from aquila.core.method import Method, Turn
from aquila.sim.model_store import MODEL_FILE
from aquila.sim.records import RECORDS_FILE
from aquila.sim.run_folder import CHECKPOINT_FILE
from aquila.sim.setting import RUN_FILE
from aquila.sim.state_store import StateStore, make_state_store
from aquila.sim.times import TIMES_FILE
from helpers.problems import ridge

PROBLEM = ridge(devices=300, dimension=50, rows=4)
METHOD = aquila.create("aquila", alpha=0.3 / PROBLEM.smoothness(), b_min=2)
THETA0 = torch.zeros(50)


TINY = 1e-6
"""MiB of memory that no state fits in."""


def simulate(rounds=8, **options):
    given = aquila.RunOptions(**{"participation": 0.1, "uplink_loss": 0.2, **options})
    return aquila.simulate(METHOD, THETA0, PROBLEM.devices, rounds, options=given)


@dataclass(frozen=True, eq=False)
class ExampleState:
    """A state with every kind of field."""

    q: torch.Tensor
    table: torch.Tensor
    age: int
    has_uploaded: bool = False


def example_state(number: float, age: int = 0) -> ExampleState:
    table = torch.full((2, 3), number, dtype=torch.float64)
    return ExampleState(torch.full((5,), number), table, age)


def same(one: ExampleState, other: ExampleState) -> bool:
    return (
        torch.equal(one.q, other.q)
        and torch.equal(one.table, other.table)
        and one.age == other.age
        and one.table.dtype == other.table.dtype
    )


def store(devices: int = 2) -> StateStore:
    return StateStore([example_state(0)], [0] * devices, None)


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


def test_state_is_restored_unchanged():
    kept = store().save(1, example_state(3, age=7))
    assert same(kept, example_state(3, age=7))


def test_saved_state_shares_no_memory_with_the_original():
    given = example_state(1)
    kept = store().save(0, given)
    given.q.zero_()
    assert same(kept, example_state(1))


def test_states_in_use_are_not_overwritten():
    states = store()
    value, before = 1.0, states.save(0, example_state(1))
    for number in range(2, 9):
        after = states.save(0, example_state(number), before)
        fallback = states.save(0, example_state(-number), before, after)
        assert same(before, example_state(value))
        assert same(after, example_state(number))
        assert same(fallback, example_state(-number))
        value, before = (-number, fallback) if number % 3 else (number, after)


def test_devices_do_not_overwrite_each_other():
    states = store(devices=4)
    kept = [states.save(device, example_state(device)) for device in range(4)]
    assert all(same(state, example_state(device)) for device, state in enumerate(kept))


def test_unchanged_state_is_not_written_again():
    states = store()
    before = states.save(0, example_state(1))
    assert states.save(0, before, before) is before


def test_state_may_share_vectors_with_the_previous_one():
    states = store()
    before = states.save(0, example_state(1))
    after = states.save(0, replace(before, table=before.table + 1, age=1), before)
    assert same(before, example_state(1))
    assert torch.equal(after.q, before.q)
    assert after.q.data_ptr() != before.q.data_ptr()


def test_state_larger_than_its_slot_stays_in_memory():
    grown = replace(example_state(1), q=torch.ones(500))
    assert store().save(0, grown) is grown


def test_store_is_used_above_the_limit():
    fleet, start = Fleet.uniform(50, 100), METHOD.device.init(THETA0)
    needed = 2 * 100 * 256  # 200 bytes take 256

    def store(limit):
        options = aquila.RunOptions(state_memory=limit / 2**20)
        return make_state_store([start], fleet, options)

    assert store(needed) is None
    assert store(needed - 1) is not None
    assert store(0) is None


def test_devices_without_state_need_no_file():
    fedsgd = aquila.create("fedsgd")
    options = aquila.RunOptions(state_memory=TINY)
    assert make_state_store([fedsgd.device.init(THETA0)], Fleet.uniform(50, 9), options) is None


@pytest.mark.parametrize("workers", [1, 3])
def test_run_has_the_same_bits(workers):
    here, there = simulate(), simulate(state_memory=TINY, workers=workers)
    assert here.records == there.records
    assert torch.equal(here.theta, there.theta)
    assert sum(record.uploads for record in here.records) > 50


def test_run_can_be_resumed_with_and_without_the_file(tmp_path):
    whole = simulate()
    simulate(rounds=3, out=tmp_path, checkpoint_every=2, state_memory=TINY)
    simulate(rounds=6, out=tmp_path, resume=True)
    resumed = simulate(out=tmp_path, resume=True, state_memory=TINY)
    assert resumed.records == whole.records
    assert torch.equal(resumed.theta, whole.theta)


def test_no_file_is_left_behind(tmp_path):
    before = open_files()
    simulate(out=tmp_path, state_memory=TINY)
    gc.collect()
    assert open_files() == before
    expected = {RECORDS_FILE, TIMES_FILE, CHECKPOINT_FILE, RUN_FILE, MODEL_FILE}
    assert {path.name for path in tmp_path.iterdir()} == expected


@dataclass(frozen=True)
class CountsLosses:
    """A device with its own fallback state, in which it counts lost replies."""

    inner: object

    def init(self, like):
        return ExampleState(torch.zeros_like(like), torch.zeros(1, dtype=torch.float64), 0)

    def step(self, state, order, oracle, key):
        turn = self.inner.step(state, order, oracle, key)
        kept = ExampleState(turn.state.q, state.table, state.age, turn.state.has_uploaded)
        lost = ExampleState(state.q, state.table + 1, state.age + 1, state.has_uploaded)
        return Turn(kept, turn.reply, {**turn.notes, "lost": float(state.table)}, lost)


def test_fallback_states_are_kept():
    method = Method("counts_losses", CountsLosses(METHOD.device), METHOD.server)
    runs = [
        aquila.simulate(
            method,
            THETA0,
            PROBLEM.devices[:5],
            20,
            options=aquila.RunOptions(uplink_loss=0.5, state_memory=limit),
        )
        for limit in (0, TINY)
    ]
    assert runs[0].records == runs[1].records
    assert torch.equal(runs[0].theta, runs[1].theta)
    assert runs[0].records[-1].notes["lost"] > 5


def test_each_width_has_its_own_slot_size():
    half = torch.arange(25)
    fleet = Fleet(50, [0, 1, 0, 1], [None, half])

    def narrow(part):
        return float(part.square().sum()), 2 * (part - 1)

    def wide(theta):
        return float(theta.square().sum()), 2 * (theta + 1)

    runs = [
        aquila.simulate(
            aquila.create("lena", alpha=0.1),
            THETA0,
            [wide, narrow] * 2,
            9,
            options=aquila.RunOptions(fleet=fleet, state_memory=limit),
        )
        for limit in (0, TINY)
    ]
    assert torch.equal(runs[0].theta, runs[1].theta)
