"""What holds for every method, whatever its row in tests/helpers/contract.py promises."""

import dataclasses
import pickle
from dataclasses import replace

import pytest
import torch

import aquila
from aquila.core.method import read_upload
from aquila.core.random import Key
from aquila.core.state import to_arrays
from aquila.core.wire import pack
from aquila.runtime.model_downlink import add_models
from aquila.sim.oracle import FunctionOracle
from helpers import contract
from helpers.contract import ROWS, Row, run_options
from helpers.contract_runs import (
    PROBLEM,
    create,
    every_method,
    fleet_in_round,
    simulation,
    theta0,
)  # fmt: skip
from helpers.problems import device_states


def arrays(state: object) -> list[object]:
    values = [getattr(state, f.name) for f in dataclasses.fields(state)]
    return [v.tolist() if isinstance(v, torch.Tensor) else v for v in values]


def arrays_of(state: object) -> dict[str, object]:
    return {name: array.tolist() for name, array in to_arrays(state).items()}


@pytest.mark.parametrize("name", aquila.METHODS)
def test_method_has_a_row(name):
    assert contract.find_row(name).name == name


@pytest.mark.parametrize("name", [row.name for row in ROWS])
def test_row_names_a_method_once(name):
    wanted = "add its file to FILES in src/aquila/methods/__init__.py, or correct its row"
    assert name in aquila.METHODS, f"there is no method {name!r}: {wanted}"
    rows = [row.name for row in ROWS].count(name)
    assert rows == 1, f"method {name!r} has {rows} rows in {contract.WHERE}"


def test_missing_row_is_reported_by_name():
    with pytest.raises(pytest.fail.Exception, match=r"'mine' has no row: add Row\('mine', .*ROWS"):
        contract.find_row("mine")


def test_broken_promise_is_reported_with_both_values():
    row = Row("mine", gap=1e-9, memory=True)
    contract.check_limit(row, "gap", 1e-9)
    with pytest.raises(AssertionError, match=r"mine: gap is 0.07; its row promises at most 1e-09"):
        contract.check_limit(row, "gap", 0.07)
    with pytest.raises(AssertionError, match=r"mine: gap is nan"):
        contract.check_limit(row, "gap", float("nan"))
    with pytest.raises(AssertionError, match=r"mine: memory is False; its row says True"):
        contract.check_fact(row, "memory", False)


@every_method
def test_method_prints_compares_and_pickles(row):
    method = create(row)
    assert method == create(row)
    assert method != create(row, alpha=0.123)
    assert pickle.loads(pickle.dumps(method)) == method
    assert method.name == row.name, f"{row.name}: its Method has the name {method.name!r}"
    assert row.name in repr(method)
    assert " at 0x" not in repr(method)  # other processes print the same text


@every_method
def test_catalogue_entry_is_complete(row):
    entry = aquila.METHODS[row.name]
    assert entry.name == row.name
    assert entry.summary.endswith(".")
    assert "20" in entry.paper
    assert entry.lost_reply.endswith(".")
    assert len(entry.lost_reply) > 20
    assert all(p.help for p in entry.parameters.values())
    assert all(p.check(p.default) == p.default for p in entry.parameters.values())


@every_method
def test_device_step_is_pure(row):
    method, run = create(row), simulation(row)
    for _ in range(3):
        run.advance()
    state = device_states(run)[1]
    _, orders = method.server.orders(
        run.server.state, fleet_in_round(run), run.server.round, Key((0,))
    )
    order = add_models(orders, run.theta, run.fleet, run.server.round)[1]
    oracle, key = FunctionOracle(PROBLEM.devices[1]), Key((7, 7))
    before, model_before = arrays(state), order.vector.decode().clone()
    first = method.device.step(state, order, oracle, key)
    second = method.device.step(state, order, oracle, key)
    assert pack(first.reply) == pack(second.reply)
    assert arrays(first.state) == arrays(second.state)
    assert arrays(state) == before
    assert torch.equal(order.vector.decode(), model_before)


@every_method
def test_server_update_is_pure(row):
    method, run = create(row), simulation(row)
    run.advance()
    half, states, fleet = method.server, device_states(run), fleet_in_round(run)
    opened, orders = half.orders(run.server.state, fleet, run.server.round, Key((0,)))
    replies = {}
    for m, order in add_models(orders, run.theta, run.fleet, run.server.round).items():
        oracle = FunctionOracle(PROBLEM.devices[m])
        reply = method.device.step(states[m], order, oracle, Key((m,))).reply
        replies[m] = read_upload(method.reader, reply, run.fleet.shapes_of(m))
    before = {name: array.copy() for name, array in to_arrays(opened).items()}
    (first, step), (second, same_step) = (half.update(opened, fleet, replies) for _ in range(2))
    assert torch.equal(step, same_step)
    assert step.any()
    assert arrays_of(first) == arrays_of(second)
    after = to_arrays(opened)
    assert all((after[name] == before[name]).all() for name in before)


@every_method
def test_same_seed_gives_the_same_bits(row):
    options = run_options(row.name, uplink_loss=0.2, downlink_loss=0.1)
    runs = [
        aquila.simulate(create(row), theta0(), PROBLEM.devices, 12, seed=3, options=options)
        for _ in range(2)
    ]
    assert runs[0].records == runs[1].records
    assert torch.equal(runs[0].theta, runs[1].theta)


@every_method
def test_one_device_can_be_replayed_alone(row):
    run = simulation(row, seed=5)
    for _ in range(4):
        run.advance()
    session, order = run.devices[2], run.server.open_round()[2]
    session.apply_ack(run.server.acks[2])
    saved = session.snapshot()
    reply = session.handle(order)
    session.restore(saved)
    assert session.handle(order) == reply


@every_method
def test_interrupted_run_resumes_bit_for_bit(row, tmp_path):
    method, devices = create(row), PROBLEM.devices
    options = run_options(row.name, uplink_loss=0.2)
    whole = aquila.simulate(method, theta0(), devices, rounds=9, options=options)

    class InterruptedRunError(Exception):
        pass

    def stop(record):
        if record.round == 6:
            raise InterruptedRunError

    options = replace(options, out=tmp_path, checkpoint_every=4)
    with pytest.raises(InterruptedRunError):
        aquila.simulate(method, theta0(), devices, rounds=9, on_record=stop, options=options)
    options = replace(options, resume=True)
    resumed = aquila.simulate(method, theta0(), devices, rounds=9, options=options)
    assert resumed.records == whole.records
    assert torch.equal(resumed.theta, whole.theta)


@every_method
def test_states_on_disk_give_the_same_bits(row):
    options = run_options(row.name, uplink_loss=0.2, participation=0.6)
    runs = [
        aquila.simulate(create(row), theta0(), PROBLEM.devices, 12, options=given)
        for given in (options, replace(options, state_memory=1e-6))
    ]
    assert runs[0].records == runs[1].records
    assert torch.equal(runs[0].theta, runs[1].theta)


@every_method
def test_server_state_does_not_grow_with_the_devices(row):
    sizes, options = [], run_options(row.name)
    for copies in (1, 20):
        devices = PROBLEM.devices * copies
        run = aquila.Simulation(create(row), theta0(), devices, options=options)
        run.advance()
        size = sum(array.nbytes for array in to_arrays(run.server.state).values())
        sizes.append(size - 8 * row.numbers_per_device * len(devices))
    assert sizes[0] == sizes[1]


@every_method
def test_gradient_that_is_not_finite_is_not_uploaded(row):
    def broken(theta):
        loss, gradient = PROBLEM.local(0, theta)
        return loss, gradient * float("nan")

    devices = [*PROBLEM.devices[:2], broken]
    options = run_options(row.name, on_nan="stop")
    with pytest.raises(aquila.NonFiniteError, match=r"device 2, round 0: 30 of 30 coordinates"):
        aquila.simulate(create(row), theta0(), devices, rounds=3, options=options)
    run = aquila.simulate(create(row), theta0(), devices, 3, options=run_options(row.name))
    assert [r.quarantined for r in run.records] == [[2], None, [2]]
    options = run_options(row.name, on_nan="skip")
    run = aquila.simulate(create(row), theta0(), devices, rounds=3, options=options)
    assert [r.refused for r in run.records] == [1, 1, 1]
    assert torch.isfinite(run.theta).all()
