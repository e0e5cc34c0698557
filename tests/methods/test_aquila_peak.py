"""AQUILA-Peak against a numpy implementation of its equations, and its properties."""

import numpy as np
import pytest
import torch

import aquila
from aquila.core.fleet import Fleet
from aquila.core.packet import Dense, Packet
from aquila.core.peaks import MAX_BLOCK, expected_error, quantize_peaks
from aquila.core.random import Key, Purpose
from aquila.core.tensors import one_tensor
from aquila.methods.aquila_peak import block_of, peak_memory_rate
from aquila.sim.oracle import FunctionOracle
from helpers.problems import all_gradients, device_states, ridge


@pytest.fixture(scope="module")
def problem():
    return ridge(devices=10, dimension=40, rows=60)


def start(problem, density, seed=0, **options):
    method = aquila.create("aquila_peak", alpha=0.2 / problem.smoothness(), density=density)
    theta0 = torch.zeros(problem.dimension, dtype=torch.float64)
    return aquila.Simulation(method, theta0, problem.devices, seed, aquila.RunOptions(**options))


def quantized(v, density, seed, round_number, device):
    key = Key((seed, round_number, device, Purpose.DEVICE))
    vector = torch.from_numpy(v)
    upload, _ = quantize_peaks(vector, one_tensor(len(v)), block_of(density), key, round_number)
    return upload.decode().numpy()


@pytest.mark.parametrize("density", [0.25, 0.5])
def test_follows_its_equations_round_by_round(problem, density):
    simulation, gradients = start(problem, density, seed=3), all_gradients(problem)
    theta, alpha = np.zeros(40), 0.2 / problem.smoothness()
    q = np.zeros_like(gradients(theta))
    for k in range(30):
        v = gradients(theta) - q
        u = np.stack([quantized(v[m], density, 3, k, m) for m in range(10)])
        theta = theta - alpha * (q + u).mean(axis=0)
        q = q + u / (1 + expected_error(round(1 / density)))
        simulation.advance()
        np.testing.assert_allclose(simulation.theta, theta, rtol=1e-7, atol=1e-9)
        states = [state.q for state in device_states(simulation)]
        np.testing.assert_allclose(states, q, rtol=1e-7, atol=1e-8)


def test_heterogeneous_devices_reach_the_exact_optimum(problem):
    """Without the memory, noise as large as the devices' differences would remain."""
    simulation = start(problem, 0.25)
    optimum = problem.optimum()
    first = problem.loss(simulation.theta) - problem.loss(optimum)
    for _ in range(200):
        simulation.advance()
    assert problem.loss(simulation.theta) - problem.loss(optimum) < 1e-9 * first


def test_upload_of_a_large_model_costs_a_thousandth_of_a_dense_one():
    gradient = torch.randn(4_000_000, generator=torch.Generator().manual_seed(1))
    method = aquila.create("aquila_peak", alpha=0.1)
    run = aquila.simulate(
        method, torch.zeros(4_000_000), [lambda theta: (0.0, gradient)] * 10, rounds=1
    )
    assert run.records[0].uplink_bytes < 10 * 4 * 4_000_000 / 1000


@pytest.mark.parametrize(
    ("fleet", "density"),
    [
        (Fleet.uniform(11_172_170, 10), 1 / 320),
        (Fleet.uniform(11_172_170, 5), 1 / 160),
        (Fleet.uniform(2_370_148, 10), 1 / 320),
        (Fleet.uniform(125_602, 10), 0.013544),
        (Fleet.uniform(125_602, 10).with_participation(0.3), 0.045147),
        (Fleet.uniform(9_610, 10), 0.02),
        (Fleet.uniform(40, 10), 0.7),
    ],
)
def test_default_density_depends_on_the_model_and_the_devices_per_round(fleet, density):
    server = aquila.create("aquila_peak").server
    _, orders = server.orders(server.init(torch.zeros(40), fleet), fleet, 0, Key((0,)))
    assert orders[0]["share"] == pytest.approx(density, rel=1e-4)
    assert orders[0]["rate"] == pytest.approx(peak_memory_rate(density), rel=1e-4)


@pytest.mark.parametrize(
    ("dimension", "work", "has_memory"),
    [(2_000_000, "epochs", False), (2_000_000, "gradient", True), (100_000, "epochs", True)],
)
def test_large_models_with_local_epochs_have_no_memory(dimension, work, has_memory):
    fleet, server = Fleet.uniform(dimension, 10), aquila.create("aquila_peak", work=work).server
    _, orders = server.orders(server.init(torch.zeros(1), fleet), fleet, 0, Key((0,)))
    assert ("rate" in orders[0]) == has_memory


@pytest.mark.parametrize(("density", "block"), [(0.7, 1), (0.5, 2), (0.02, 50), (1e-9, MAX_BLOCK)])
def test_blocks_are_as_long_as_the_density_asks(density, block):
    assert block_of(density) == block


def test_single_gradients_are_sent_in_every_round():
    fleet = Fleet.uniform(2_000_000, 10)
    server = aquila.create("aquila_peak", upload_every=0).server
    _, orders = server.orders(server.init(torch.zeros(1), fleet), fleet, 0, Key((0,)))
    assert "share" in orders[0]


def test_a_device_without_a_rate_replies_like_one_without_a_state():
    device, stateless = (
        aquila.create("aquila_peak", memory=memory).device for memory in ("device", "none")
    )
    oracle = FunctionOracle(lambda theta: (1.0, torch.linspace(-1, 1, 400)))
    order = Packet(0, Dense(torch.zeros(400)), {"share": 0.1})
    first = device.init(torch.zeros(400))
    turn = device.step(first, order, oracle, Key((0,)))
    assert turn.state.q is first.q
    wanted = stateless.step(stateless.init(torch.zeros(400)), order, oracle, Key((0,)))
    assert torch.equal(turn.reply.vector.codes, wanted.reply.vector.codes)


def test_a_fleet_must_know_the_tensors_of_the_model():
    model = torch.nn.Linear(5, 2)
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    task = aquila.problem(model, [(x[m::4], x[m::4, 0].gt(0).long()) for m in range(4)])
    method = aquila.create("aquila_peak", alpha=0.1)
    with pytest.raises(aquila.WireError, match=r"fleet=problem\.fleet"):
        aquila.simulate(method, task.theta0, task.devices, rounds=1)
    assert task.train(method, rounds=20).records[-1].loss < 0.6
