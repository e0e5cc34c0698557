"""AQUILA-Dither against a numpy implementation of its equations, and its properties."""

import numpy as np
import pytest
import torch

import aquila
from aquila.core.fleet import Fleet
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.passes import plain
from aquila.core.quantize import dither_seed, shared_dither
from aquila.core.random import Key, Purpose
from aquila.methods.aquila_dither import DitherDeviceState
from aquila.sim.oracle import FunctionOracle
from helpers.problems import all_gradients, device_states, ridge


def stochastic_sparse(v, density, dither):
    step = np.sqrt((v**2).mean()) / density
    return step * np.sign(v) * np.floor(np.abs(v) / step + dither)


class AquilaDither:
    """The method in numpy, one row per device."""

    def __init__(self, problem, theta0, alpha, density):
        self.gradients, self.devices = all_gradients(problem), problem.devices
        self.theta, self.alpha, self.density = theta0, alpha, density
        self.q = np.zeros_like(self.gradients(theta0))
        self.first_losses = self.lowest_losses = self.losses()
        self.boosts = np.ones(len(self.devices))

    def losses(self):
        return np.array([local(torch.from_numpy(self.theta))[0] for local in self.devices])

    def advance(self, dither):
        v = self.gradients(self.theta) - self.q
        densities = np.minimum(0.7, self.boosts * self.density)
        u = np.stack([stochastic_sparse(*row) for row in zip(v, densities, dither, strict=True)])
        self.update_boosts()
        self.theta = self.theta - self.alpha * (self.q + u).mean(axis=0)
        self.q = self.q + u / (1 + 1 / self.density)

    def update_boosts(self):
        losses = self.losses()
        rose = losses - np.minimum(self.lowest_losses, losses) > 0.2 * self.first_losses
        decayed = np.maximum(0.95 * self.boosts, 1)
        self.boosts = np.where(rose, np.minimum(2 * self.boosts, 64), decayed)
        self.lowest_losses = np.where(rose, losses, np.minimum(self.lowest_losses, losses))


@pytest.fixture(scope="module")
def problem():
    return ridge(devices=10, dimension=40, rows=60)


def start(problem, density, step=0.2, seed=0, **options):
    """Return a run from zero with a step size of `step` / L."""
    method = aquila.create("aquila_dither", alpha=step / problem.smoothness(), density=density)
    theta0 = torch.zeros(problem.dimension, dtype=torch.float64)
    return aquila.Simulation(method, theta0, problem.devices, seed, aquila.RunOptions(**options))


def dithers(simulation, k, density):
    """Return the dithers of all devices in a round."""
    keys = [Key((3, k, m, Purpose.DEVICE)) for m in simulation.fleet.devices]
    seeds = [dither_seed(key, density) for key in keys]
    return np.stack([plain.dither(seed, simulation.theta) for seed in seeds])


def run_and_compare(simulation, reference, rounds):
    """Advance both; return the largest boost of each round."""
    boosts = []
    for k in range(rounds):
        reference.advance(dithers(simulation, k, reference.density))
        simulation.advance()
        np.testing.assert_allclose(simulation.theta, reference.theta, rtol=1e-7, atol=1e-9)
        q = [state.q for state in device_states(simulation)]
        np.testing.assert_allclose(q, reference.q, rtol=1e-7, atol=1e-8)
        boosts.append(reference.boosts.max())
    return boosts


@pytest.mark.parametrize("density", [0.05, 0.25])
def test_follows_its_equations_round_by_round(problem, density):
    reference = AquilaDither(problem, np.zeros(40), 0.2 / problem.smoothness(), density)
    boosts = run_and_compare(start(problem, density, seed=3), reference, rounds=40)
    assert (max(boosts) > 1) == (density == 0.05)  # a low density is noisy


def test_follows_its_equations_at_the_default_density():
    problem = ridge(devices=3, dimension=2400, rows=8)
    reference = AquilaDither(problem, np.zeros(2400), 0.05, density=0.2)
    method = aquila.create("aquila_dither", alpha=0.05)
    theta0 = torch.zeros(2400, dtype=torch.float64)
    simulation = aquila.Simulation(method, theta0, problem.devices, seed=3)
    run_and_compare(simulation, reference, rounds=25)


def test_heterogeneous_devices_reach_the_exact_optimum(problem):
    """Without the memory, noise as large as the devices' differences would remain."""
    simulation = start(problem, 0.25)
    optimum = problem.optimum()
    first = problem.loss(simulation.theta) - problem.loss(optimum)
    for _ in range(200):
        simulation.advance()
    assert problem.loss(simulation.theta) - problem.loss(optimum) < 1e-9 * first


def test_lost_reply_rolls_the_memory_back(problem):
    simulation = start(problem, 0.5, uplink_loss=0.4, seed=2)
    for _ in range(12):
        before = [s.q.clone() for s in device_states(simulation)]
        record = simulation.advance()
        assert 0 < record.uploads < 10
        for m, (state, q) in enumerate(zip(device_states(simulation), before, strict=True)):
            assert torch.equal(state.q, q) == (m not in record.levels)


def test_upload_costs_a_thousandth_of_a_dense_one():
    generator = torch.Generator().manual_seed(1)
    # products of normal numbers are about as uneven as the gradients of large networks
    gradient = torch.randn(2, 4_000_000, generator=generator).prod(0)
    method = aquila.create("aquila_dither", alpha=0.1)
    devices = [lambda t: (0.0, gradient)] * 10
    run = aquila.simulate(method, torch.zeros(4_000_000), devices, rounds=1)
    assert run.records[0].uplink_bytes < 10 * 4 * 4_000_000 / 850


def test_zero_innovation_is_a_skip():
    method = aquila.create("aquila_dither", alpha=0.1)
    zero = [lambda theta: (0.0, torch.zeros_like(theta))] * 2
    run = aquila.simulate(method, torch.zeros(20), zero, rounds=2)
    assert [r.skips for r in run.records] == [2, 2]


@pytest.mark.parametrize(
    ("fleet", "density"),
    [
        (Fleet.uniform(11_172_170, 10), 0.015),
        (Fleet.uniform(11_172_170, 100), 0.015),
        (Fleet.uniform(2_370_148, 10), 0.019487),
        (Fleet.uniform(1_000_000, 20), 0.03),
        (Fleet.uniform(1_000_000, 5), 0.06),
        (Fleet.uniform(1_000_000, 20).with_participation(0.1), 0.15),
        (Fleet.uniform(1_000_000, 5).with_weights([4, 1, 1, 1, 1]), 0.09375),
        (Fleet.uniform(137_000, 10), 0.06),
        (Fleet.uniform(9_610, 10), 0.06),
        (Fleet.uniform(480, 10), 0.1),
        (Fleet.uniform(40, 10), 0.7),
        (Fleet.uniform(9_610, 1), 0.6),
    ],
)
def test_default_density_depends_on_the_model_and_the_devices_per_round(fleet, density):
    server = aquila.create("aquila_dither").server
    state = server.init(torch.zeros(fleet.dimension), fleet)
    _, orders = server.orders(state, fleet, 0, Key((0,)))
    assert list(orders) == list(fleet.devices)
    for order in orders.values():
        assert order["share"] == pytest.approx(density, rel=1e-4)
        assert order["rate"] == pytest.approx(1 / (1 + 1 / density), rel=1e-4)


def test_uploads_of_a_device_can_be_subtracted():
    fleet, server = Fleet.uniform(40, 10), aquila.create("aquila_dither").server
    state = server.init(torch.zeros(40), fleet)
    replies = [Packet(k, shared_dither(torch.ones(40), 0.7, Key((k,)))) for k in range(3)]
    for reply in replies:
        state, _ = server.update(state, fleet, {0: reply, 1: Packet(reply.round)})
    assert state.q_bar.any()
    sent = [server.contribution(reply) for reply in replies]
    assert float(server.forget(state, fleet, 0, sent).q_bar.abs().max()) < 1e-15


@pytest.mark.parametrize("devices", [1, 2, 10])
def test_default_density_suits_small_fleets(devices):
    """At a density of 6 % the same runs keep at least 8 % of the gap."""
    problem = ridge(devices=devices, dimension=40, rows=60)
    method = aquila.create("aquila_dither", alpha=0.5 / problem.smoothness())
    run = aquila.simulate(method, torch.zeros(40), problem.devices, rounds=60)
    best = problem.loss(problem.optimum())
    assert problem.loss(run.theta) - best < 0.01 * (problem.loss(torch.zeros(40)) - best)


@pytest.mark.parametrize(
    ("name", "value", "maximum"),
    [
        *(("share", value, "0.7") for value in (0.0, -1.0, 0.71, float("nan"))),
        *(("rate", value, "1") for value in (0.0, -1.0, 1.01, float("nan"))),
    ],
)
def test_order_with_an_invalid_scalar_is_refused(name, value, maximum):
    device = aquila.create("aquila_dither").device
    order = Packet(4, Dense(torch.zeros(40)), {"share": 0.7, "rate": 1.0} | {name: value})
    message = (
        rf"the order of round 4 has {name} = {value}; it must be above 0 and at most {maximum}$"
    )
    with pytest.raises(WireError, match=message):
        device.step(device.init(torch.zeros(40)), order, None, Key((0,)))


def test_order_must_carry_the_density():
    device = aquila.create("aquila_dither").device
    order = Packet(4, Dense(torch.zeros(4)), {"rate": 0.5})
    with pytest.raises(WireError, match="lacks the scalar 'share'"):
        device.step(device.init(torch.zeros(4)), order, None, Key((0,)))


def test_without_a_rate_a_device_has_no_memory():
    device, stateless = (
        aquila.create("aquila_dither", memory=memory).device for memory in ("device", "none")
    )
    oracle = FunctionOracle(lambda theta: (1.0, torch.linspace(-1, 1, 400)))
    order = Packet(0, Dense(torch.zeros(400)), {"share": 0.1})
    first = device.init(torch.zeros(400))
    turn = device.step(first, order, oracle, Key((0,)))
    assert turn.state.q is first.q
    wanted = stateless.step(stateless.init(torch.zeros(400)), order, oracle, Key((0,)))
    assert torch.equal(turn.reply.vector.decode(), wanted.reply.vector.decode())


def test_boost_multiplies_the_density_up_to_its_maximum():
    device = aquila.create("aquila_dither").device
    oracle = FunctionOracle(lambda theta: (1.0, torch.ones_like(theta)))
    order = Packet(0, Dense(torch.zeros(400)), {"share": 0.1, "rate": 0.25})
    for boost, density in [(1.0, 0.1), (4.0, 0.4), (64, 0.7)]:
        state = DitherDeviceState(
            torch.zeros(400), first_loss=1.0, lowest_loss=1.0, density_boost=boost
        )
        turn = device.step(state, order, oracle, Key((0,)))
        assert not turn.reply.scalars
        assert float(turn.reply.vector.step) == pytest.approx(1 / density)
        torch.testing.assert_close(turn.state.q, 0.25 * turn.reply.vector.decode())


def test_device_whose_loss_rises_doubles_its_density():
    start = DitherDeviceState(torch.zeros(1))
    losses = [5.0, 4.0, 4.9, 5.1, 5.0, 6.2, 5.9]
    boosts = []
    for loss in losses:
        start = start.after_loss(loss)
        boosts.append(start.density_boost)
    # a rise by more than a fifth of the first loss since the boost last grew
    assert boosts == pytest.approx([1, 1, 1, 2, 1.9, 3.8, 3.61])
    assert DitherDeviceState(torch.zeros(1)).after_loss(-5.0).after_loss(-4.5).density_boost == 1


def test_large_step_at_a_low_density_does_not_diverge(problem):
    """Without the boost the same run ends at 1e47 times its initial gap."""
    simulation = start(problem, 0.004, step=0.5)
    best = problem.loss(problem.optimum())
    first = problem.loss(simulation.theta) - best
    for _ in range(150):
        simulation.advance()
    assert problem.loss(simulation.theta) - best < 10 * first
    assert max(state.density_boost for state in device_states(simulation)) > 8


def test_boost_is_limited():
    state = DitherDeviceState(torch.zeros(1))
    for loss in range(1, 20):
        state = state.after_loss(float(loss))
    assert state.density_boost == 64


def test_rise_of_the_loss_counts_even_if_the_reply_is_lost(problem):
    simulation = start(problem, 0.004, step=0.5, uplink_loss=0.5)
    for _ in range(30):
        simulation.advance()
    assert max(state.density_boost for state in device_states(simulation)) > 2


def test_memory_of_independent_updates_only_adds_noise():
    """docs/our-methods-defaults.md: the squared norm of an innovation up to doubles."""
    generator = torch.Generator().manual_seed(0)
    devices = [lambda theta: (0.0, torch.randn(20_000, generator=generator))] * 10
    method = aquila.create("aquila_dither", alpha=1e-9, density=0.05, memory="device")
    run = aquila.Simulation(method, torch.zeros(20_000), devices, seed=0)
    for _ in range(120):
        run.advance()
    memory = sum(float(s.q.square().mean()) for s in device_states(run)) / 10  # updates have 1
    assert 0.5 < memory < 1


def test_stateless_devices_send_their_quantized_gradient(problem):
    alpha = 0.2 / problem.smoothness()
    method = aquila.create("aquila_dither", alpha=alpha, density=0.25, memory="none")
    theta0 = torch.zeros(40, dtype=torch.float64)
    simulation = aquila.Simulation(method, theta0, problem.devices, seed=3)
    theta, gradients = np.zeros(40), all_gradients(problem)
    for k in range(5):
        rows = zip(gradients(theta), dithers(simulation, k, 0.25), strict=True)
        theta = theta - alpha * np.mean([stochastic_sparse(v, 0.25, r) for v, r in rows], axis=0)
        simulation.advance()
        np.testing.assert_allclose(simulation.theta, theta, rtol=1e-7, atol=1e-9)
    assert all(not vars(state) for state in device_states(simulation))


def test_stateless_devices_get_the_default_density():
    server = aquila.create("aquila_dither", memory="none").server
    fleet = Fleet.uniform(11_172_170, 10)
    _, orders = server.orders(server.init(None, fleet), fleet, 0, Key((0,)))
    assert orders[3] == {"share": 0.015}
