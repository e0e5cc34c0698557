"""What every method must do, whatever it does. A new method is tested here without a new line."""

import dataclasses
import math
import pickle
from dataclasses import replace

import pytest
import torch

import aquila
from aquila.core.envelope import parse
from aquila.core.packet import Packet
from aquila.core.random import Key
from aquila.core.state import to_arrays
from aquila.core.wire import pack
from aquila.runtime.archive import MemoryArchive
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import FunctionOracle, as_shard
from helpers.problems import CONVERGENT_PARAMETERS, ridge

PROBLEM = ridge(devices=5, dimension=30)
ALPHA = 0.5 / PROBLEM.smoothness()
OVERHEAD = 64  # bytes a frame may take beside its codes

every_method = pytest.mark.parametrize("name", aquila.METHODS)


def create(name: str, **parameters: object) -> aquila.Method:
    return aquila.create(name, alpha=ALPHA, **CONVERGENT_PARAMETERS.get(name, {}), **parameters)


def theta0(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(PROBLEM.dimension, dtype=dtype)


def simulation(name: str, seed: int = 0, **options: object) -> aquila.Simulation:
    given = aquila.RunOptions(**options)
    return aquila.Simulation(create(name), theta0(), PROBLEM.devices, seed, given)


def average_memory(run: aquila.Simulation) -> torch.Tensor | None:
    state = run.server.state
    return getattr(getattr(state, "inner", state), "q_bar", None)


def remembers(name: str) -> bool:
    return average_memory(simulation(name)) is not None


def arrays(state: object) -> list[object]:
    values = [getattr(state, f.name) for f in dataclasses.fields(state)]
    return [v.tolist() if isinstance(v, torch.Tensor) else v for v in values]


@every_method
def test_method_prints_compares_and_pickles(name):
    method = create(name)
    assert method == create(name)
    assert method != aquila.create(name, alpha=2 * ALPHA)
    assert pickle.loads(pickle.dumps(method)) == method
    assert name in repr(method)


@every_method
def test_catalogue_says_what_a_user_must_know(name):
    entry = aquila.METHODS[name]
    assert entry.name == name
    assert entry.summary.endswith(".")
    assert "20" in entry.paper
    assert len(entry.lost_reply) > 20
    assert all(p.help for p in entry.parameters.values())
    assert all(p.check(p.default) == p.default for p in entry.parameters.values())


@every_method
def test_steps_are_pure(name):
    method = create(name)
    run = simulation(name)
    for _ in range(3):
        run.advance()
    session = run.devices[1]
    session.apply_ack(run.server.acks[1])
    _, orders = method.server.orders(run.server.state, run.fleet, run.server.round, Key((0,)))
    order, oracle, key = orders[1], FunctionOracle(PROBLEM.devices[1]), Key((7, 7))
    before = arrays(session.state)
    model_before = order.vector.decode().clone()
    first = method.device.step(session.state, order, oracle, key)
    second = method.device.step(session.state, order, oracle, key)
    assert pack(first.reply) == pack(second.reply)
    assert arrays(first.state) == arrays(second.state)
    assert arrays(session.state) == before
    assert torch.equal(order.vector.decode(), model_before)


@every_method
def test_server_update_is_pure(name):
    run = simulation(name)
    run.advance()
    orders = run.server.open_round()
    for device, order in orders.items():
        run.server.receive(device, run.devices[device].handle(order))
    before = run.server.theta.clone()
    replies = {device: entry.reply for device, entry in run.server._open.received.items()}
    half, opened = run.server.half, run.server._open.state
    once = half.model(half.update(opened, run.fleet, replies))
    again = half.model(half.update(opened, run.fleet, replies))
    assert torch.equal(once, again)
    assert torch.equal(run.server.theta, before)


@every_method
@pytest.mark.parametrize("uplink_loss", [0.0, 0.2])
def test_same_seed_same_bits(name, uplink_loss):
    options = aquila.RunOptions(uplink_loss=uplink_loss, downlink_loss=uplink_loss / 2)
    runs = [
        aquila.simulate(create(name), theta0(), PROBLEM.devices, 12, seed=3, options=options)
        for _ in range(2)
    ]
    assert runs[0].records == runs[1].records
    assert torch.equal(runs[0].theta, runs[1].theta)


@every_method
def test_one_device_can_be_replayed_alone(name):
    run = simulation(name, seed=5)
    for _ in range(4):
        run.advance()
    session, order = run.devices[2], run.server.open_round()[2]
    session.apply_ack(run.server.acks[2])
    saved = session.snapshot()
    reply = session.handle(order)
    session.restore(saved)
    assert session.handle(order) == reply


@every_method
@pytest.mark.parametrize("uplink_loss", [0.0, 0.2])
def test_reaches_the_optimum_of_a_strongly_convex_problem(name, uplink_loss):
    optimum = PROBLEM.optimum()
    gap_at_start = PROBLEM.loss(theta0(torch.float64)) - PROBLEM.loss(optimum)
    run = aquila.simulate(
        create(name),
        theta0(torch.float64),
        PROBLEM.devices,
        rounds=100,
        options=aquila.RunOptions(uplink_loss=uplink_loss),
    )
    gap = PROBLEM.loss(run.theta) - PROBLEM.loss(optimum)
    # without memory, losing replies of devices that disagree leaves noise of the gradients' size
    tolerance = 1e-3 if uplink_loss == 0 else 1e-2 if remembers(name) else 0.1
    assert gap < tolerance * gap_at_start


@pytest.mark.parametrize("name", [name for name in aquila.METHODS if remembers(name)])
@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_average_memory_is_the_mean_of_the_memories(name, participation):
    options = {"uplink_loss": 0.3, "downlink_loss": 0.2, "participation": participation}
    run = simulation(name, seed=1, **options)
    for _ in range(25):
        run.advance()
        memories = []
        for session in run.devices:
            session.apply_ack(run.server.acks[session.device])
            memories.append(session.state.q.double())
        torch.testing.assert_close(
            average_memory(run), sum(memories) / len(memories), rtol=1e-5, atol=1e-6
        )


@every_method
def test_a_device_that_begins_anew_is_counted_once(name):
    """It loses its state in round 3; what it sent before is taken back, to the last memory."""
    method, theta = create(name), theta0(torch.float64)
    fleet = aquila.Fleet.uniform(PROBLEM.dimension, 5)
    server = ServerSession(method, theta, fleet, seed=0, archive=MemoryArchive())

    def device(m):
        return DeviceSession(method, m, as_shard(PROBLEM.devices[m]), theta, seed=0)

    devices = [device(m) for m in range(5)]
    for round_number in range(6):
        if round_number == 3:
            devices[1] = device(1)
        for m, order in server.open_round().items():
            server.receive(m, devices[m].handle(order))
        assert server.close_round()[1].fresh is (round_number == 3)
    if not server.half.remembers:
        return
    for session in devices:
        session.apply_ack(server.acks[session.device])
    q_bar = getattr(server.state, "inner", server.state).q_bar
    mean = sum(session.state.q for session in devices) / 5
    torch.testing.assert_close(q_bar, mean, rtol=1e-11, atol=1e-12)


@every_method
def test_bytes_are_the_formula_plus_a_small_overhead(name):
    run = simulation(name)
    for _ in range(10):
        orders = run.server.open_round()
        for device, order in orders.items():
            reply = run.devices[device].handle(order)
            frame = parse(reply)
            formula = math.ceil(frame.paper_bits / 8)
            assert frame.paper_bits == frame.bits * PROBLEM.dimension * bool(frame.body)
            assert formula <= len(reply) <= formula + OVERHEAD
            run.server.receive(device, reply)
        run.server.close_round()


@every_method
def test_interrupted_run_resumes_bit_for_bit(name, tmp_path):
    method, devices = create(name), PROBLEM.devices
    options = aquila.RunOptions(uplink_loss=0.2)
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
def test_states_on_disk_have_the_same_bits(name):
    options = aquila.RunOptions(uplink_loss=0.2, participation=0.6)
    runs = [
        aquila.simulate(create(name), theta0(), PROBLEM.devices, 12, options=given)
        for given in (options, replace(options, state_memory=1e-6))
    ]
    assert runs[0].records == runs[1].records
    assert torch.equal(runs[0].theta, runs[1].theta)


@every_method
def test_the_server_holds_nothing_for_each_device(name):
    sizes = set()
    for copies in (1, 20):
        run = aquila.Simulation(create(name), theta0(), PROBLEM.devices * copies)
        run.advance()
        sizes.add(sum(array.nbytes for array in to_arrays(run.server.state).values()))
    assert len(sizes) == 1


def modes(name: str) -> list[dict[str, str]]:
    choices = aquila.METHODS[name].parameters.get("work")
    return [{"work": work} for work in choices.choices] if choices else [{}]


@pytest.mark.parametrize(("name", "work"), [(n, w) for n in aquila.METHODS for w in modes(n)])
def test_minibatches_and_local_epochs(name, work):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 4, generator=generator)
    y = (x @ torch.randn(4, 3, generator=generator)).argmax(1)
    torch.manual_seed(0)
    problem = aquila.problem(
        torch.nn.Linear(4, 3), [(x[m::4], y[m::4]) for m in range(4)], batch_size=8, epochs=2
    )
    method = aquila.create(name, alpha=0.2, **CONVERGENT_PARAMETERS.get(name, {}), **work)
    run = aquila.simulate(method, problem.theta0, problem.devices, rounds=30)
    first, last = (sum(r.loss for r in part) / 5 for part in (run.records[:5], run.records[-5:]))
    assert last < 0.7 * first


@every_method
def test_refuses_to_upload_what_is_not_finite(name):
    def broken(theta):
        loss, gradient = PROBLEM.local(0, theta)
        return loss, gradient * float("nan")

    devices = [*PROBLEM.devices[:2], broken]
    with pytest.raises(aquila.NonFiniteError, match=r"device 2, round 0: 30 of 30 coordinates"):
        aquila.simulate(create(name), theta0(), devices, rounds=3)
    run = aquila.simulate(
        create(name), theta0(), devices, rounds=3, options=aquila.RunOptions(on_nan="skip")
    )
    assert [r.refused for r in run.records] == [1, 1, 1]
    assert torch.isfinite(run.theta).all()


@every_method
def test_a_reply_of_nothing_is_no_harm(name):
    zero = [lambda theta: (1.0, torch.zeros_like(theta))] * 3
    run = aquila.simulate(create(name), theta0(), zero, rounds=3)
    assert torch.equal(run.theta, theta0())
    skip = len(pack(Packet(0)))
    if name in {"aquila", "qsgd", "laq", "lag", "lena"}:
        assert {size for r in run.records for size in r.uplink.values()} == {skip}


@every_method
def test_heterogeneous_fleet_trains(name):
    """Two of five devices hold only the first half; no method is told."""
    half = torch.arange(PROBLEM.dimension // 2)
    fleet = aquila.Fleet(PROBLEM.dimension, [0, 0, 0, 1, 1], [None, half])

    def narrow(m):
        def local(part):
            theta = torch.zeros(PROBLEM.dimension, dtype=part.dtype)
            theta[half] = part
            loss, gradient = PROBLEM.local(m, theta)
            return loss, gradient[half]

        return local

    devices = [*PROBLEM.devices[:3], narrow(3), narrow(4)]
    run = aquila.simulate(
        create(name), theta0(), devices, rounds=30, options=aquila.RunOptions(fleet=fleet)
    )
    assert run.records[-1].loss < 0.7 * run.records[0].loss
    body = {d: size for r in run.records[:1] for d, size in r.uplink.items()}
    assert body[3] < body[0]
