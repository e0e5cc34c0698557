"""What each row of tests/helpers/contract.py promises for its method."""

import math

import pytest
import torch

import aquila
from aquila.core.envelope import parse
from aquila.core.method import has_memory, server_memory
from aquila.core.packet import Packet
from aquila.core.wire import pack
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.server_session import ServerSession
from aquila.sim.oracle import as_shard
from helpers import contract
from helpers.contract_runs import (
    KNOWN_ROWS,
    PROBLEM,
    create,
    every_method,
    methods_with_memory,
    simulation,
    theta0,
)
from helpers.memory_archive import MemoryArchive
from helpers.problems import device_states


def assert_average_memory(row, server_state, states, rtol, atol):
    """The server's memory is the average of the devices' memories."""
    method = create(row)
    contract.check_fact(row, "memory", has_memory(method.server))
    memories = [method.device.memory(state).double() for state in states]
    average = server_memory(method.server).memory(server_state)
    torch.testing.assert_close(average, sum(memories) / len(memories), rtol=rtol, atol=atol)


@every_method
def test_declarations_match_the_row(row):
    method, entry = create(row), aquila.METHODS[row.name]
    contract.check_fact(row, "memory", has_memory(method.server))
    work = entry.parameters.get("work")
    contract.check_fact(row, "works", work.choices if work else ())


@every_method
@pytest.mark.parametrize("uplink_loss", [0.0, 0.2])
def test_approaches_the_optimum_of_a_strongly_convex_problem(row, uplink_loss):
    optimum = PROBLEM.optimum()
    gap_at_start = PROBLEM.loss(theta0(torch.float64)) - PROBLEM.loss(optimum)
    run = aquila.simulate(
        create(row),
        theta0(torch.float64),
        PROBLEM.devices,
        rounds=contract.ROUNDS,
        options=contract.run_options(row.name, uplink_loss=uplink_loss),
    )
    gap = PROBLEM.loss(run.theta) - PROBLEM.loss(optimum)
    contract.check_limit(row, "gap_with_losses" if uplink_loss else "gap", gap / gap_at_start)


@methods_with_memory
@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_server_memory_is_the_average_of_the_devices_memories(row, participation):
    method = create(row)
    run = simulation(row, 1, uplink_loss=0.3, downlink_loss=0.2, participation=participation)
    for _ in range(25):
        run.advance()
        assert_average_memory(row, run.server.state, device_states(run), 1e-5, 1e-6)
    assert server_memory(method.server).memory(run.server.state).any()


@every_method
def test_restarted_device_is_counted_once(row):
    """A device loses its state in round 3. The server subtracts its earlier uploads."""
    method, theta = create(row), theta0(torch.float64)
    fleet = aquila.Fleet.uniform(PROBLEM.dimension, 5)
    services = contract.services(row.name, 5)
    archive = MemoryArchive()
    server = ServerSession(method, theta, fleet, seed=0, archive=archive, services=services)

    def device(m):
        return DeviceSession(method, m, as_shard(PROBLEM.devices[m]), theta, seed=0)

    devices = [device(m) for m in range(5)]
    for round_number in range(6):
        if round_number == 3:
            devices[1] = device(1)
        for m, order in server.open_round().items():
            server.receive(m, devices[m].handle(order))
        assert server.close_round()[1].fresh is (round_number == 3)
    for session in devices:
        session.apply_ack(server.acks[session.device])
    if row.memory:
        states = [session.state for session in devices]
        assert_average_memory(row, server.state, states, 1e-11, 1e-12)


@every_method
def test_replies_are_at_most_the_papers_bits_plus_an_overhead(row):
    run, reader = simulation(row), create(row).reader
    allowed = (
        reader.dimensions(run.fleet.shapes_of(0))
        if reader
        else range(PROBLEM.dimension, PROBLEM.dimension + 1)
    )
    for _ in range(10):
        orders = run.server.open_round()
        for device, order in orders.items():
            reply = run.devices[device].handle(order)
            frame = parse(reply)
            formula = math.ceil(frame.paper_bits / 8)
            assert frame.paper_bits == frame.bits * frame.dimension
            assert frame.dimension in allowed or not frame.body
            contract.check_limit(row, "max_overhead_bytes", len(reply) - formula)
            run.server.receive(device, reply)
        run.server.close_round()


@pytest.mark.parametrize(
    ("row", "work"),
    [
        pytest.param(row, {"work": work} if work else {}, id=f"{row.name}-{work or 'only'}")
        for row in KNOWN_ROWS
        for work in row.works or ("",)
    ],
)
def test_trains_with_minibatches_and_local_epochs(row, work):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 4, generator=generator)
    y = (x @ torch.randn(4, 3, generator=generator)).argmax(1)
    torch.manual_seed(0)
    problem = aquila.problem(
        torch.nn.Linear(4, 3), [(x[m::4], y[m::4]) for m in range(4)], batch_size=8, epochs=2
    )
    method = aquila.create(row.name, **{"alpha": 0.4, **row.parameters, **work})
    run = problem.train(method, rounds=15, options=contract.run_options(row.name))
    first, last = (sum(r.loss for r in part) / 3 for part in (run.records[:3], run.records[-3:]))
    contract.check_limit(row, "loss_ratio", last / first)


@every_method
def test_zero_gradients_leave_the_model_unchanged(row):
    zero = [lambda theta: (1.0, torch.zeros_like(theta))] * 3
    options = contract.run_options(row.name)
    run = aquila.simulate(create(row), theta0(), zero, rounds=3, options=options)
    assert torch.equal(run.theta, theta0())
    contract.check_fact(row, "silent_on_zero", all(r.skips == 3 for r in run.records))
    if row.silent_on_zero:
        scalars = dict.fromkeys(row.skip_scalars, 1.0)
        skip = len(pack(Packet(0, None, scalars, refers_to=1)))
        sizes = {size for r in run.records for size in r.uplink.values()}
        assert sizes == {skip}, f"{row.name}: a skip carries other scalars than its row says"


@every_method
def test_heterogeneous_fleet_trains(row):
    """Two of five devices hold only the first half of the model."""
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
    options = contract.run_options(row.name, fleet=fleet)
    run = aquila.simulate(create(row), theta0(), devices, rounds=30, options=options)
    ratio = run.records[-1].loss / run.records[0].loss
    contract.check_limit(row, "loss_ratio_with_widths", ratio)
    body = {d: size for r in run.records[:1] for d, size in r.uplink.items()}
    # methods that read links give more bits to a device with fewer coordinates
    assert body[3] < body[0] or (row.pads and body[3] == body[0]) or "link" in row.options
