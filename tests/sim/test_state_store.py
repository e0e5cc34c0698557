"""States in a mapped file are the states they were, and leave nothing behind."""

import gc
import os
from dataclasses import dataclass, replace

import pytest
import torch

import aquila
from aquila.core.fleet import Fleet
from aquila.core.method import Method, Turn
from aquila.sim.records import RECORDS_FILE
from aquila.sim.run_folder import CHECKPOINT_FILE
from aquila.sim.state_store import StateStore, make_state_store
from helpers.problems import ridge

PROBLEM = ridge(devices=300, dimension=50, rows=4)
METHOD = aquila.create("aquila", alpha=0.3 / PROBLEM.smoothness(), b_min=2)
THETA0 = torch.zeros(50)


def simulate(**options):
    options = {"rounds": 8, "participation": 0.1, "link": aquila.Link(uplink_loss=0.2), **options}
    return aquila.simulate(METHOD, THETA0, PROBLEM.devices, **options)


@dataclass(frozen=True, eq=False)
class ExampleState:
    """A state with all that a state may have."""

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


def test_a_state_comes_back_as_it_was():
    kept = store().save(1, example_state(3, age=7))
    assert same(kept, example_state(3, age=7))


def test_a_state_is_apart_from_the_one_it_was_made_of():
    given = example_state(1)
    kept = store().save(0, given)
    given.q.zero_()
    assert same(kept, example_state(1))


def test_states_still_held_are_not_written_over():
    states = store()
    value, before = 1.0, states.save(0, example_state(1))
    for number in range(2, 9):
        after = states.save(0, example_state(number), before)
        fallback = states.save(0, example_state(-number), before, after)
        assert same(before, example_state(value))
        assert same(after, example_state(number))
        assert same(fallback, example_state(-number))
        value, before = (-number, fallback) if number % 3 else (number, after)


def test_devices_do_not_write_over_each_other():
    states = store(devices=4)
    kept = [states.save(device, example_state(device)) for device in range(4)]
    assert all(same(state, example_state(device)) for device, state in enumerate(kept))


def test_a_state_that_did_not_change_is_not_written_again():
    states = store()
    before = states.save(0, example_state(1))
    assert states.save(0, before, before) is before


def test_a_state_may_share_vectors_with_the_one_before():
    states = store()
    before = states.save(0, example_state(1))
    after = states.save(0, replace(before, table=before.table + 1, age=1), before)
    assert same(before, example_state(1))
    assert torch.equal(after.q, before.q)
    assert after.q.data_ptr() != before.q.data_ptr()


def test_a_state_that_outgrows_its_place_stays_in_memory():
    grown = replace(example_state(1), q=torch.ones(500))
    assert store().save(0, grown) is grown


def test_the_limit_decides():
    fleet, start = Fleet.uniform(50, 100), METHOD.device.init(THETA0)
    assert make_state_store([start], fleet, 2 * 100 * 256, None) is None  # 200 bytes take 256
    assert make_state_store([start], fleet, 2 * 100 * 256 - 1, None) is not None
    assert make_state_store([start], fleet, None, None) is None
    with pytest.raises(ValueError, match="state_memory must be at least 0 bytes, not -1"):
        make_state_store([start], fleet, -1, None)


def test_devices_that_remember_nothing_need_no_file():
    fedsgd = aquila.create("fedsgd")
    assert make_state_store([fedsgd.device.init(THETA0)], Fleet.uniform(50, 9), 0, None) is None


@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_has_the_same_bits(workers):
    here, there = simulate(), simulate(state_memory=0, workers=workers)
    assert here.records == there.records
    assert torch.equal(here.theta, there.theta)
    assert sum(record.uploads for record in here.records) > 50


def test_a_run_can_be_resumed_on_either_side(tmp_path):
    whole = simulate()
    simulate(rounds=3, out=tmp_path, checkpoint_every=2, state_memory=0)
    simulate(rounds=6, out=tmp_path, resume=True)
    resumed = simulate(out=tmp_path, resume=True, state_memory=0)
    assert resumed.records == whole.records
    assert torch.equal(resumed.theta, whole.theta)


def test_nothing_is_left_behind(tmp_path):
    before = open_files()
    simulate(out=tmp_path, state_memory=0)
    gc.collect()
    assert open_files() == before
    assert {path.name for path in tmp_path.iterdir()} == {RECORDS_FILE, CHECKPOINT_FILE}


@dataclass(frozen=True)
class CountsLosses:
    """A device that falls back to a state of its own: it counts what was lost."""

    inner: object

    def init(self, like):
        return ExampleState(torch.zeros_like(like), torch.zeros(1, dtype=torch.float64), 0)

    def step(self, state, order, oracle, key):
        turn = self.inner.step(state, order, oracle, key)
        kept = ExampleState(turn.state.q, state.table, state.age, turn.state.has_uploaded)
        lost = ExampleState(state.q, state.table + 1, state.age + 1, state.has_uploaded)
        return Turn(kept, turn.reply, {**turn.notes, "lost": float(state.table)}, lost)


def test_a_fallback_of_its_own_survives():
    method = Method("counts_losses", CountsLosses(METHOD.device), METHOD.server)
    link = aquila.Link(uplink_loss=0.5)
    runs = [
        aquila.simulate(method, THETA0, PROBLEM.devices[:5], 20, link=link, state_memory=limit)
        for limit in (None, 0)
    ]
    assert runs[0].records == runs[1].records
    assert torch.equal(runs[0].theta, runs[1].theta)
    assert runs[0].records[-1].notes["lost"] > 5


def test_widths_have_places_of_their_own_size():
    half = torch.arange(25)
    fleet = Fleet(50, [0, 1, 0, 1], [None, half])

    def narrow(part):
        return float(part.square().sum()), 2 * (part - 1)

    def wide(theta):
        return float(theta.square().sum()), 2 * (theta + 1)

    runs = [
        aquila.simulate(
            aquila.create("lena", alpha=0.1), THETA0, [wide, narrow] * 2, 9, fleet=fleet,
            state_memory=limit,
        )
        for limit in (None, 0)
    ]  # fmt: skip
    assert torch.equal(runs[0].theta, runs[1].theta)
