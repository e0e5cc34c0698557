"""AQUILA-TopK against a numpy implementation of its equations, and its properties."""

import numpy as np
import pytest
import torch

import aquila
from aquila.core.random import Key, Purpose
from aquila.methods.aquila_topk import limited_error, random_error
from helpers.problems import all_gradients, device_states, ridge


def sparse(v, density):
    threshold = np.sort(np.abs(v))[-max(1, round(density * len(v)))]
    step = threshold / 0.6
    magnitude = np.floor(np.abs(v) / step + 0.4)
    magnitude[np.abs(v) == threshold] = 1
    return step * magnitude * np.sign(v)


class AquilaTopk:
    """The method in numpy, one row per device."""

    def __init__(self, gradients, theta0, alpha, density):
        self.gradients, self.theta, self.alpha, self.density = gradients, theta0, alpha, density
        self.e = np.zeros_like(gradients(theta0))
        self.q = np.zeros_like(self.e)

    def advance(self, uniform=None):
        v = self.gradients(self.theta) - self.q
        if uniform is not None:  # the first round draws the errors
            step = np.abs(v).mean(axis=1, keepdims=True) / self.density
            size = 0.6 - np.abs(2 * uniform - 1) / 2
            self.e = step * size * np.sign(2 * uniform - 1)
        accumulated = self.e + v
        u = np.stack([sparse(row, self.density) for row in accumulated])
        self.theta = self.theta - self.alpha * (self.q + u).mean(axis=0)
        self.e, self.q = accumulated - u, self.q + self.density / 2 * u


@pytest.fixture(scope="module")
def problem():
    return ridge(devices=10, dimension=40, rows=60)


def start(problem, density, step=0.2, seed=0, **options):
    """Return a run from zero with a step size of `step` / L."""
    method = aquila.create("aquila_topk", alpha=step / problem.smoothness(), density=density)
    theta0 = torch.zeros(problem.dimension, dtype=torch.float64)
    return aquila.Simulation(method, theta0, problem.devices, seed, aquila.RunOptions(**options))


@pytest.mark.parametrize("density", [0.05, 0.25])
def test_follows_its_equations_round_by_round(problem, density):
    simulation = start(problem, density)
    alpha = 0.2 / problem.smoothness()
    reference = AquilaTopk(all_gradients(problem), np.zeros(40), alpha, density)
    like = simulation.theta
    keys = [Key((0, 0, m, Purpose.DEVICE)) for m in simulation.fleet.devices]
    for k in range(40):
        reference.advance(np.stack([key.uniform(like) for key in keys]) if k == 0 else None)
        simulation.advance()
        ours = device_states(simulation)
        np.testing.assert_allclose(simulation.theta, reference.theta, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose([s.e for s in ours], reference.e, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose([s.q for s in ours], reference.q, rtol=1e-7, atol=1e-8)


def test_errors_keep_all_that_was_not_sent(problem):
    """θ - α mean(e) moves by exactly -α ∇f(θ) for every quantizer."""
    simulation, at = start(problem, 0.1), all_gradients(problem)
    alpha = 0.2 / problem.smoothness()
    simulation.advance()
    drawn = np.mean([s.e.numpy() for s in device_states(simulation)], axis=0)
    virtual = simulation.theta.numpy() - alpha * drawn
    for _ in range(30):
        virtual = virtual - alpha * at(simulation.theta.numpy()).mean(axis=0)
        simulation.advance()
        accumulated = np.mean([s.e.numpy() for s in device_states(simulation)], axis=0)
        np.testing.assert_allclose(
            simulation.theta.numpy() - alpha * accumulated, virtual, atol=1e-9
        )


def test_heterogeneous_devices_reach_the_exact_optimum(problem):
    """Error feedback without the memory would stop at a distance."""
    simulation = start(problem, 0.25)
    optimum = problem.optimum()
    first = problem.loss(simulation.theta) - problem.loss(optimum)
    for _ in range(200):
        simulation.advance()
    assert problem.loss(simulation.theta) - problem.loss(optimum) < 1e-9 * first


def test_lost_reply_rolls_error_and_memory_back(problem):
    simulation = start(problem, 0.1, uplink_loss=0.4, seed=2)
    for _ in range(12):
        before = [(s.e.clone(), s.q.clone()) for s in device_states(simulation)]
        record = simulation.advance()
        assert 0 < record.uploads < 10
        for m, (state, (e, q)) in enumerate(zip(device_states(simulation), before, strict=True)):
            kept = torch.equal(state.e, e) and torch.equal(state.q, q)
            assert kept == (m not in record.levels)


def test_signal_is_sent_and_much_of_the_noise_is_not():
    """A signal in ten of a thousand coordinates, with noise of the same size in all of them."""
    signal = torch.zeros(1000)
    signal[:10] = 1.0
    generator = torch.Generator().manual_seed(0)

    def noisy(theta):
        return 0.0, signal + torch.randn(1000, generator=generator)

    method = aquila.create("aquila_topk", alpha=1.0, density=0.01)
    run = aquila.simulate(method, torch.zeros(1000), [noisy], rounds=100)
    assert run.theta[:10].mean() == pytest.approx(-100, rel=0.15)
    assert (run.theta[10:] == 0).float().mean() > 0.4


def test_upload_costs_a_fraction_of_a_bit_per_coordinate():
    generator = torch.Generator().manual_seed(1)
    gradient = torch.randn(200_000, generator=generator)
    method = aquila.create("aquila_topk", alpha=0.1, density=0.01)
    run = aquila.simulate(method, torch.zeros(200_000), [lambda t: (0.0, gradient)], rounds=3)
    # density 1 %: 0.081 bits per coordinate for the positions, 0.01 for signs, a few for magnitudes
    assert all(r.uplink_bytes * 8 < 0.11 * 200_000 for r in run.records)


def test_first_upload_is_unbiased():
    """A coordinate of a quarter of the mean size is sent as often as its size demands."""
    v = torch.tensor([0.25, 0.5, -1.0, 2.25]).repeat(25_000)
    keys = [Key((seed,)) for seed in range(20)]
    step = float(v.abs().mean()) / 0.05
    for value in (0.25, 0.5, -1.0, 2.25):
        sent = [
            float(((random_error(v, 0.05, key) + v)[v == value].abs() >= 0.6 * step).float().mean())
            for key in keys
        ]
        assert np.mean(sent) == pytest.approx(abs(value) / step, rel=0.05)


def test_training_starts_without_delay():
    """With errors that start at zero the model has moved by a tenth of this after ten rounds."""
    gradient = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    method = aquila.create("aquila_topk", alpha=1.0)
    devices = [lambda theta: (0.0, gradient)] * 10
    run = aquila.simulate(method, torch.zeros(20_000), devices, rounds=10)
    progress = float(-run.theta @ gradient) / float(gradient @ gradient)
    assert progress == pytest.approx(10, rel=0.15)


@pytest.mark.parametrize(("participation", "random"), [(1.0, True), (0.5, False)])
def test_random_errors_are_requested_once_if_all_devices_take_part(participation, random):
    server = aquila.create("aquila_topk").server
    fleet = aquila.Fleet.uniform(4, 2).with_participation(participation)
    state = server.init(torch.zeros(4), fleet)
    requests = [server.orders(state, fleet, k, Key((0,)))[1][1] for k in range(3)]
    assert [order.get("start") for order in requests] == [2**0.5 if random else None, None, None]


def test_mean_of_initial_errors_is_at_most_as_long_as_two_models():
    generator = torch.Generator().manual_seed(0)
    error, theta = (torch.randn(1000, generator=generator) for _ in range(2))
    assert limited_error(error, theta, alpha=0.1, root_devices=3.0) is error
    limited = limited_error(error, theta / 100, alpha=0.1, root_devices=3.0)
    assert float(limited.norm()) * 0.1 / 3.0 == pytest.approx(2 * float(theta.norm()) / 100)
    assert torch.equal(limited.sign(), error.sign())
    assert limited_error(error, torch.zeros(1000), alpha=0.1, root_devices=3.0) is error


def test_zero_error_is_a_skip(problem):
    method = aquila.create("aquila_topk", alpha=0.1)
    zero = [lambda theta: (0.0, torch.zeros_like(theta))] * 2
    run = aquila.simulate(method, torch.zeros(20), zero, rounds=2)
    assert [r.skips for r in run.records] == [2, 2]


@pytest.mark.parametrize(
    ("fleet", "density"),
    [
        (aquila.Fleet.uniform(11_172_170, 10), 0.01),
        (aquila.Fleet.uniform(2_250_000, 10), 0.012),
        (aquila.Fleet.uniform(125_602, 10), 0.018),
        (aquila.Fleet.uniform(125_602, 5), 0.036),
        (aquila.Fleet.uniform(480, 10), 0.1),
        (aquila.Fleet.uniform(40, 10), 0.7),
    ],
)
def test_default_density_depends_on_the_model_and_the_devices_per_round(fleet, density):
    server = aquila.create("aquila_topk").server
    state = server.init(torch.zeros(fleet.dimension), fleet)
    order = server.orders(state, fleet, 5, Key((0,)))[1][0]
    assert order == {"share": pytest.approx(density), "rate": pytest.approx(density / 2)}


def test_device_sends_the_density_of_the_order():
    gradient = torch.arange(1.0, 20_001)
    devices = [lambda theta: (0.0, gradient)] * 10
    run = aquila.simulate(aquila.create("aquila_topk"), torch.zeros(20_000), devices, rounds=1)
    # random errors let each device send other coordinates
    assert 360 < int((run.theta != 0).sum()) <= 3600
