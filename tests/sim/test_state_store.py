"""States in a mapped file are the states they were, and leave nothing behind."""

import gc
import os
from dataclasses import dataclass, replace

import pytest
import torch

import aquila
from aquila.core.fleet import Fleet
from aquila.core.method import Method, Turn
from aquila.sim.folder import CHECKPOINT
from aquila.sim.records import RECORDS
from aquila.sim.store import StateStore, store_for
from problems import ridge

PROBLEM = ridge(devices=300, dimension=50, rows=4)
METHOD = aquila.create("aquila", alpha=0.3 / PROBLEM.smoothness(), b_min=2)
THETA0 = torch.zeros(50)


def simulate(**options):
    options = {"rounds": 8, "participation": 0.1, "link": aquila.Link(uplink_loss=0.2), **options}
    return aquila.simulate(METHOD, THETA0, PROBLEM.devices, **options)


@dataclass(frozen=True, eq=False)
class Notebook:
    """A state with all that a state may have."""

    q: torch.Tensor
    table: torch.Tensor
    age: int
    known: bool = False


def notebook(number: float, age: int = 0) -> Notebook:
    table = torch.full((2, 3), number, dtype=torch.float64)
    return Notebook(torch.full((5,), number), table, age)


def same(one: Notebook, other: Notebook) -> bool:
    return (
        torch.equal(one.q, other.q)
        and torch.equal(one.table, other.table)
        and one.age == other.age
        and one.table.dtype == other.table.dtype
    )


def store(devices: int = 2) -> StateStore:
    return StateStore([notebook(0)], [0] * devices, None)


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


def test_a_state_comes_back_as_it_was():
    kept = store().keep(1, notebook(3, age=7))
    assert same(kept, notebook(3, age=7))


def test_a_state_is_apart_from_the_one_it_was_made_of():
    given = notebook(1)
    kept = store().keep(0, given)
    given.q.zero_()
    assert same(kept, notebook(1))


def test_states_still_held_are_not_written_over():
    room = store()
    value, before = 1.0, room.keep(0, notebook(1))
    for number in range(2, 9):
        after = room.keep(0, notebook(number), before)
        fallback = room.keep(0, notebook(-number), before, after)
        assert same(before, notebook(value))
        assert same(after, notebook(number))
        assert same(fallback, notebook(-number))
        value, before = (-number, fallback) if number % 3 else (number, after)


def test_devices_do_not_write_over_each_other():
    room = store(devices=4)
    kept = [room.keep(device, notebook(device)) for device in range(4)]
    assert all(same(state, notebook(device)) for device, state in enumerate(kept))


def test_a_state_that_did_not_change_is_not_written_again():
    room = store()
    before = room.keep(0, notebook(1))
    assert room.keep(0, before, before) is before


def test_a_state_may_share_vectors_with_the_one_before():
    room = store()
    before = room.keep(0, notebook(1))
    after = room.keep(0, replace(before, table=before.table + 1, age=1), before)
    assert same(before, notebook(1))
    assert torch.equal(after.q, before.q)
    assert after.q.data_ptr() != before.q.data_ptr()


def test_a_state_that_outgrows_its_place_stays_in_memory():
    grown = replace(notebook(1), q=torch.ones(500))
    assert store().keep(0, grown) is grown


def test_the_limit_decides():
    fleet, start = Fleet.uniform(50, 100), METHOD.device.init(THETA0)
    assert store_for([start], fleet, 2 * 100 * 256, None) is None  # 200 bytes take 256
    assert store_for([start], fleet, 2 * 100 * 256 - 1, None) is not None
    assert store_for([start], fleet, None, None) is None
    with pytest.raises(ValueError, match="state_memory must be at least 0 bytes, not -1"):
        store_for([start], fleet, -1, None)


def test_devices_that_remember_nothing_need_no_file():
    fedsgd = aquila.create("fedsgd")
    assert store_for([fedsgd.device.init(THETA0)], Fleet.uniform(50, 9), 0, None) is None


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
    assert {path.name for path in tmp_path.iterdir()} == {RECORDS, CHECKPOINT}


@dataclass(frozen=True)
class Wavering:
    """A device that falls back to a state of its own: it counts what was lost."""

    inner: object

    def init(self, like):
        return Notebook(torch.zeros_like(like), torch.zeros(1, dtype=torch.float64), 0)

    def step(self, state, order, oracle, key):
        turn = self.inner.step(state, order, oracle, key)
        kept = Notebook(turn.state.q, state.table, state.age, turn.state.known)
        lost = Notebook(state.q, state.table + 1, state.age + 1, state.known)
        return Turn(kept, turn.reply, {**turn.notes, "lost": float(state.table)}, lost)


def test_a_fallback_of_its_own_survives():
    method = Method("wavering", Wavering(METHOD.device), METHOD.server)
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
