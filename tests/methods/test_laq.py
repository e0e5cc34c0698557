"""LAQ against a numpy implementation of its rule, and its convergence."""

from functools import partial

import numpy as np
import pytest
import torch

import aquila
from aquila.core.packet import WireError
from aquila.core.random import Key
from aquila.runtime.device_session import DeviceSession
from aquila.runtime.server_session import ServerSession
from helpers.memory_archive import MemoryArchive
from helpers.problems import device_states, ridge


class Reference:
    """LAQ in numpy, with averages instead of sums: upload if significant or silent too long."""

    def __init__(self, gradients, theta0, alpha, bits, xi, depth, t_bar, errors):
        self.gradients, self.alpha, self.bits = gradients, alpha, bits
        self.xi, self.depth, self.t_bar, self.errors = xi, depth, t_bar, errors
        self.models = [theta0]
        self.q = np.zeros_like(gradients(theta0))
        self.last_error = np.zeros(len(self.q))
        self.silence = np.full(len(self.q), t_bar)  # at the limit, so that all devices upload first

    def advance(self):
        """Run a round; return the devices that uploaded, and those forced to by the clock."""
        uploaded, forced = set(), set()
        drift = self.drift()
        for m, v in enumerate(self.gradients(self.models[-1]) - self.q):
            dq = self.quantize(v)
            sent, error = np.sum(dq**2), np.sum((v - dq) ** 2)
            errors = self.errors * (error + self.last_error[m])
            threshold = self.xi / self.alpha**2 * drift + errors
            if sent >= threshold or self.silence[m] == self.t_bar:
                if sent < threshold:
                    forced.add(m)
                uploaded.add(m)
                self.q[m] += dq
                self.last_error[m], self.silence[m] = error, 0
            else:
                self.silence[m] += 1
        self.models.append(self.models[-1] - self.alpha * self.q.mean(axis=0))
        return uploaded, forced

    def drift(self):
        """Average of the last squared steps, at most `depth` of them."""
        steps = [np.sum((b - a) ** 2) for a, b in zip(self.models, self.models[1:], strict=False)]
        return np.mean(steps[-self.depth :]) if steps else 0.0

    def quantize(self, v):
        R, tau = np.max(np.abs(v)), 1 / (2**self.bits - 1)
        return 2 * tau * R * np.floor((v + R) / (2 * tau * R) + 0.5) - R


@pytest.fixture(scope="module")
def problem():
    return ridge(devices=10, dimension=40, rows=60)


def gradients(problem, theta):
    return np.stack([local(torch.from_numpy(theta))[1].numpy() for local in problem.devices])


def start(problem, relative_step, options=aquila.RunOptions(), **parameters):
    """Return a run from zero with a step size of `relative_step` / L."""
    method = aquila.create("laq", alpha=relative_step / problem.smoothness(), **parameters)
    theta0 = torch.zeros(problem.dimension, dtype=torch.float64)
    return aquila.Simulation(method, theta0, problem.devices, options=options)


def distance(problem, simulation):
    """Remaining distance to the optimum ÷ initial distance."""
    optimum = problem.optimum()
    return float(torch.linalg.norm(simulation.theta - optimum) / torch.linalg.norm(optimum))


@pytest.mark.parametrize(
    ("bits", "xi", "depth", "t_bar", "errors"),
    [(6, 0.8, 10, 100, 3), (4, 0.8, 3, 3, 3), (8, 0.1, 1, 100, 3), (4, 0.8, 10, 100, 0)],
)
def test_laq_follows_its_rule_round_by_round(problem, bits, xi, depth, t_bar, errors):
    rule = {"bits": bits, "xi": xi, "depth": depth, "t_bar": t_bar, "errors": errors}
    simulation = start(problem, 0.2, **rule)
    reference = Reference(
        partial(gradients, problem), np.zeros(40), 0.2 / problem.smoothness(), **rule
    )
    uploads = forced = 0
    for _ in range(50):
        uploaded, by_clock = reference.advance()
        assert simulation.advance().levels == dict.fromkeys(uploaded, bits)
        ours = device_states(simulation)
        np.testing.assert_allclose(simulation.theta, reference.models[-1], rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose([s.q for s in ours], reference.q, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose([s.error_squared for s in ours], reference.last_error, rtol=1e-6)
        assert [s.rounds_silent for s in ours] == reference.silence.tolist()
        uploads, forced = uploads + len(uploaded), forced + len(by_clock)
    assert 10 < uploads < 500
    assert (forced > 0) == (t_bar == 3)


def test_device_is_silent_for_at_most_t_bar_rounds(problem):
    simulation = start(problem, 0.1, xi=1e6, t_bar=4)  # nothing is ever significant
    uploads = [simulation.advance().uploads for _ in range(16)]
    assert uploads == [10, 0, 0, 0, 0] * 3 + [10]


def test_without_error_terms_coarse_uploads_are_not_silenced(problem):
    uploads = {}
    for errors in (3, 0):
        simulation = start(problem, 0.2, bits=2, errors=errors)
        uploads[errors] = sum(simulation.advance().uploads for _ in range(40))
    assert uploads[3] <= 20
    assert uploads[0] > 60


def test_laq_converges_and_skips(problem):
    simulation = start(problem, 0.5)
    records = [simulation.advance() for _ in range(200)]
    assert sum(record.skips for record in records) > 200
    assert distance(problem, simulation) < 1e-6


def test_optimum_is_reached_with_a_quarter_of_the_replies_lost(problem):
    simulation = start(problem, 0.5, aquila.RunOptions(uplink_loss=0.25))
    lost = skips = 0
    for _ in range(200):
        record = simulation.advance()
        lost, skips = lost + record.lost, skips + record.skips
        mean = np.mean([state.q.numpy() for state in device_states(simulation)], axis=0)
        np.testing.assert_allclose(simulation.server.state.q_bar, mean, atol=1e-12)
    assert lost == pytest.approx(0.25 * 2000, rel=0.1)
    assert skips > 200
    assert distance(problem, simulation) < 1e-6


def layers(dtype=torch.float64):
    """Return a least-squares problem with the tensors of a linear layer."""
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(1), dtype=dtype)
    module = torch.nn.Linear(6, 40, dtype=dtype)
    torch.nn.init.zeros_(module.weight)
    torch.nn.init.zeros_(module.bias)
    targets = torch.stack([x[:, 0] * (1 + m / 40) + 1 for m in range(40)], dim=1)
    shards = [(x[m::3], targets[m::3] * (1 + 0.2 * m)) for m in range(3)]
    return aquila.problem(module, shards, loss=torch.nn.functional.mse_loss)


class ReferencePerTensor(Reference):
    """LAQ in numpy with a range for the 240 weights and one for the 40 biases."""

    def quantize(self, v):
        return np.concatenate([super().quantize(v[:240]), super().quantize(v[240:])])


def test_range_per_tensor_follows_its_rule_round_by_round():
    problem, rule = layers(), {"bits": 3, "xi": 0.8, "depth": 5, "t_bar": 8, "errors": 3.0}
    method = aquila.create("laq", alpha=1.0, range="tensor", **rule)
    options = aquila.RunOptions(fleet=problem.fleet)
    simulation = aquila.Simulation(method, problem.theta0, problem.devices, options=options)

    def gradients(theta):
        at = torch.from_numpy(theta)
        return np.stack([d.oracle(Key((0, 0, 0))).gradient(at)[1].numpy() for d in problem.devices])

    reference = ReferencePerTensor(gradients, problem.theta0.numpy(), 1.0, **rule)
    uploads = 0
    for _ in range(25):
        uploaded, _ = reference.advance()
        assert simulation.advance().levels == dict.fromkeys(uploaded, 3)
        np.testing.assert_allclose(simulation.theta, reference.models[-1], rtol=1e-8, atol=1e-9)
        uploads += len(uploaded)
    assert 3 < uploads < 75


class TwoScales:
    """Gradients that change sign every round: 10,000 coordinates up to 0.1 and four of size 10."""

    samples = 1
    shapes = (torch.Size([100, 100]), torch.Size([4]))
    size = torch.cat([torch.linspace(-0.1, 0.1, 10_000), torch.full((4,), 10.0)])

    def __init__(self, sign=1):
        self.sign = sign

    def oracle(self, key):
        return TwoScales((-1) ** key.path[1])  # the round

    def gradient(self, theta):
        return 1.0, self.sign * self.size

    def train(self, theta, alpha):
        return self.gradient(theta)


@pytest.mark.parametrize(("scope", "uploads"), [("vector", 0), ("tensor", 30)])
def test_tensors_of_different_scales_silence_a_shared_range(scope, uploads):
    """At 4 bits the grid of the large tensor has an error of 2/3 per small coordinate."""
    fleet = aquila.Fleet(10_004, [0, 0, 0], shapes=[TwoScales.shapes])
    method = aquila.create("laq", alpha=1.0, bits=4, depth=1, range=scope)
    options = aquila.RunOptions(fleet=fleet)
    run = aquila.simulate(method, torch.zeros(10_004), [TwoScales()] * 3, 11, options=options)
    assert sum(record.uploads for record in run.records[1:]) == uploads


def test_memories_per_tensor_stay_equal_when_replies_are_lost():
    problem = layers(dtype=torch.float32)
    method = aquila.create("laq", alpha=1.0, bits=5, range="tensor")
    options = aquila.RunOptions(uplink_loss=0.3, downlink_loss=0.2, fleet=problem.fleet)
    simulation = aquila.Simulation(method, problem.theta0, problem.devices, 2, options)
    lost = 0
    for _ in range(30):
        lost += simulation.advance().lost
        mean = np.mean([state.q.double().numpy() for state in device_states(simulation)], axis=0)
        np.testing.assert_allclose(simulation.server.state.q_bar, mean, rtol=1e-5, atol=1e-6)
    assert lost > 10


def test_server_without_the_tensors_of_the_model_says_what_to_pass():
    problem = layers()
    method = aquila.create("laq", range="tensor")
    with pytest.raises(WireError, match=r"other tensors .*; pass RunOptions\(fleet=problem.fleet"):
        aquila.simulate(method, problem.theta0, problem.devices, rounds=1)


def test_restarted_device_is_subtracted_with_its_tensors():
    problem = layers()
    method = aquila.create("laq", alpha=1.0, bits=5, range="tensor")
    server = ServerSession(method, problem.theta0, problem.fleet, seed=0, archive=MemoryArchive())

    def device(m):
        return DeviceSession(method, m, problem.devices[m], problem.theta0, seed=0)

    devices = [device(m) for m in range(3)]
    for round_number in range(5):
        if round_number == 3:
            devices[1] = device(1)
        for m, order in server.open_round().items():
            server.receive(m, devices[m].handle(order))
        server.close_round()
    for session in devices:
        session.apply_ack(server.acks[session.device])
    mean = np.mean([session.state.q.numpy() for session in devices], axis=0)
    np.testing.assert_allclose(server.state.q_bar, mean, rtol=1e-9, atol=1e-12)
