"""LENA, and the variant in AQUILA's tables, against numpy implementations of their rules."""

import numpy as np
import pytest
import torch

import aquila
from aquila.core.packet import Dense, Packet
from aquila.core.random import Key
from aquila.sim.oracle import FunctionOracle
from helpers.problems import all_gradients, device_states, ridge


def midrise(v, bits):
    R, tau = np.max(np.abs(v)), 1 / (2**bits - 1)
    return 2 * tau * R * np.floor((v + R) / (2 * tau * R) + 0.5) - R


class Lena:
    """LENA in numpy: errors accumulate until they are large compared with the gradient."""

    def __init__(self, gradients, theta0, alpha, zeta, bits):
        self.gradients, self.theta, self.alpha = gradients, theta0, alpha
        self.zeta, self.bits = zeta, bits
        self.known = np.zeros_like(gradients(theta0))
        self.error = np.zeros_like(self.known)
        self.last = np.full(len(self.known), -1)  # round of the last upload
        self.round = 0

    def advance(self):
        """Run a round; return the age of every upload."""
        ages, used = {}, self.known.copy()
        for m, g in enumerate(self.gradients(self.theta)):
            self.error[m] += g - self.known[m]
            if self.round == 0 or np.sum(self.error[m] ** 2) > self.zeta * np.sum(g**2):
                u = self.error[m].copy() if self.bits == 32 else midrise(self.error[m], self.bits)
                ages[m] = self.round - self.last[m]
                used[m] = self.known[m] + u
                self.known[m] = self.known[m] + u / ages[m]
                self.error[m] = self.error[m] - u
                self.last[m] = self.round
        self.theta = self.theta - self.alpha * used.mean(axis=0)
        self.round += 1
        return ages


class Tables:
    """LENA of the tables in numpy: gradients are quantized, or whole after a large change."""

    def __init__(self, gradients, theta0, alpha, zeta, bits):
        self.gradients, self.theta, self.alpha = gradients, theta0, alpha
        self.zeta, self.bits = zeta, bits
        self.whole = np.zeros_like(gradients(theta0))

    def advance(self):
        """Run a round; return the devices that sent whole gradients."""
        fired, sent = set(), []
        for m, g in enumerate(self.gradients(self.theta)):
            if np.sum((g - self.whole[m]) ** 2) > self.zeta * np.sum(self.whole[m] ** 2):
                fired.add(m)
                self.whole[m] = g
            sent.append(g if m in fired else midrise(g, self.bits))
        self.theta = self.theta - self.alpha * np.mean(sent, axis=0)
        return fired


@pytest.fixture(scope="module")
def problem():
    return ridge(devices=10, dimension=40, rows=60)


def start(name, problem, relative_step, dtype=torch.float64, **parameters):
    """Return a run from zero with a step size of `relative_step` / L."""
    method = aquila.create(name, alpha=relative_step / problem.smoothness(), **parameters)
    return aquila.Simulation(method, torch.zeros(problem.dimension, dtype=dtype), problem.devices)


@pytest.mark.parametrize("bits", [32, 6])
@pytest.mark.parametrize("zeta", [0.01, 0.1])
def test_lena_follows_its_rule_round_by_round(problem, bits, zeta):
    simulation = start("lena", problem, 0.2, zeta=zeta, bits=bits)
    alpha = 0.2 / problem.smoothness()
    reference = Lena(all_gradients(problem), np.zeros(40), alpha, zeta, bits)
    seen = set()
    for _ in range(60):
        ages = reference.advance()
        record = simulation.advance()
        assert record.levels == dict.fromkeys(ages, 64 if bits == 32 else bits)
        assert record.skips == 10 - len(ages)
        ours = device_states(simulation)
        np.testing.assert_allclose(simulation.theta, reference.theta, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose([s.q for s in ours], reference.known, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose([s.error for s in ours], reference.error, rtol=1e-9, atol=1e-11)
        seen |= set(ages.values())
    assert 1 in seen
    assert max(seen) >= 3  # so u / age is tested


def test_server_memory_is_the_average_of_the_known_gradients(problem):
    simulation = start("lena", problem, 0.2, bits=6)
    for _ in range(30):
        simulation.advance()
        mean = np.mean([state.q.numpy() for state in device_states(simulation)], axis=0)
        np.testing.assert_allclose(simulation.server.state.q_bar, mean, rtol=1e-9, atol=1e-12)


def test_upload_at_32_bits_leaves_no_error(problem):
    simulation = start("lena", problem, 0.2, bits=32)
    for _ in range(10):
        levels = simulation.advance().levels
        errors = [bool(state.error.any()) for state in device_states(simulation)]
        assert errors == [m not in levels for m in range(10)]


@pytest.mark.parametrize("zeta", [0.05, 1.0])
def test_lena_tables_follows_its_rule_round_by_round(problem, zeta):
    simulation = start("lena_tables", problem, 0.2, zeta=zeta)
    alpha = 0.2 / problem.smoothness()
    reference = Tables(all_gradients(problem), np.zeros(40), alpha, zeta, bits=6)
    fired = []
    for _ in range(60):
        whole = reference.advance()
        record = simulation.advance()
        assert record.levels == {m: 64 if m in whole else 6 for m in range(10)}
        assert record.skips == 0
        np.testing.assert_allclose(simulation.theta, reference.theta, rtol=1e-9, atol=1e-11)
        fired.append(len(whole))
    assert fired[0] == 10
    assert fired.count(0) > 10
    assert (sum(fired[1:]) > 0) == (zeta == 0.05)


def test_lena_tables_sends_32_bits_when_the_filter_fires_else_6(problem):
    simulation = start("lena_tables", problem, 0.2, torch.float32, zeta=0.05)
    first = simulation.advance()
    assert first.levels == dict.fromkeys(range(10), 32)
    assert first.paper_bits == 32 * 40 * 10
    levels = [simulation.advance().levels for _ in range(20)]
    assert {bits for row in levels for bits in row.values()} == {6, 32}
    assert all(len(row) == 10 for row in levels)


@pytest.mark.parametrize(
    ("grid", "sent"), [("midrise", [3.5, 0.5, -0.5]), ("midtread", [3.0, 0.0, -1.0])]
)
def test_grid_of_the_control_contains_zero(grid, sent):
    """Three bits and a range of 3.5 give a step of 1. The second gradient fires no filter."""
    gradient = torch.tensor([3.5, 0.3, -0.6], dtype=torch.float64)
    oracle = FunctionOracle(lambda theta: (0.0, gradient))
    device = aquila.create("lena_tables", bits=3, grid=grid).device
    order = Packet(0, Dense(torch.zeros_like(gradient)))
    first = device.step(device.init(gradient), order, oracle, Key((0,)))
    assert first.reply.vector.decode().tolist() == gradient.tolist()
    second = device.step(first.state, order, oracle, Key((0,)))
    assert second.reply.vector.decode().tolist() == sent
    assert second.reply.vector.bits == 3
