"""LAdaQ against a numpy implementation: LAQ's rule at AdaQuantFL's width."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

import aquila
from aquila.core.wire import unpack
from helpers.problems import Ridge, ridge

DEVICES, DIMENSION = 8, 30


@pytest.fixture(scope="module")
def problem():
    """One optimum for all devices, with a loss of zero."""
    blocks = ridge(devices=DEVICES, dimension=DIMENSION, rows=60).blocks
    truth = torch.linspace(-1, 2, DIMENSION, dtype=torch.float64)
    return Ridge(blocks, [A @ truth for A in blocks], weight=0.0)


class Reference:
    """LAdaQ in numpy; every device's loss counts, also when it skips."""

    def __init__(self, problem, alpha, b_0, xi, depth, t_bar):
        self.problem, self.alpha, self.b_0 = problem, alpha, b_0
        self.xi, self.depth, self.t_bar = xi, depth, t_bar
        self.models, self.losses = [np.zeros(DIMENSION)], []
        self.q = np.zeros((DEVICES, DIMENSION))
        self.last_error = np.zeros(DEVICES)
        self.silence = np.full(DEVICES, t_bar)

    def advance(self):
        """Run a round; return its width and the devices that uploaded."""
        growth = math.sqrt(self.losses[0] / self.losses[-1]) if self.losses else 1.0
        width, uploaded, losses = min(math.floor(self.b_0 * growth), 32), set(), []
        past = self.models[-self.depth - 1 :]
        steps = [np.sum((b - a) ** 2) for a, b in pairwise(past)]
        drift = self.xi / self.alpha**2 * np.mean(steps) if steps else 0.0
        for m, local in enumerate(self.problem.devices):
            loss, gradient = local(torch.from_numpy(self.models[-1]))
            losses.append(loss)
            v = gradient.numpy() - self.q[m]
            dq = v if width == 32 else self.quantize(v, width)
            error = np.sum((v - dq) ** 2)
            significant = np.sum(dq**2) >= drift + 3 * (error + self.last_error[m])
            if significant or self.silence[m] == self.t_bar:
                uploaded.add(m)
                self.q[m] += dq
                self.last_error[m], self.silence[m] = error, 0
            else:
                self.silence[m] += 1
        self.losses.append(np.mean(losses))
        self.models.append(self.models[-1] - self.alpha * self.q.mean(axis=0))
        return width, uploaded

    @staticmethod
    def quantize(v, bits):
        R, tau = np.max(np.abs(v)), 1 / (2**bits - 1)
        return 2 * tau * R * np.floor((v + R) / (2 * tau * R) + 0.5) - R


def step_size(problem):
    return 0.2 / problem.smoothness()


def start(problem, dtype=torch.float64, **parameters):
    method = aquila.create("ladaq", alpha=step_size(problem), **parameters)
    return aquila.Simulation(method, torch.zeros(DIMENSION, dtype=dtype), problem.devices)


@pytest.mark.parametrize(
    ("b_0", "xi", "depth", "t_bar"), [(6, 0.8, 10, 100), (4, 0.8, 3, 5), (3, 0.3, 3, 20)]
)
def test_ladaq_follows_its_rule_round_by_round(problem, b_0, xi, depth, t_bar):
    rule = {"b_0": b_0, "xi": xi, "depth": depth, "t_bar": t_bar}
    simulation = start(problem, **rule)
    reference = Reference(problem, step_size(problem), **rule)
    widths, uploads = [], 0
    for _ in range(60):
        width, uploaded = reference.advance()
        record = simulation.advance()
        assert record.levels == dict.fromkeys(uploaded, 64 if width == 32 else width)
        assert record.skips == DEVICES - len(uploaded)
        assert record.notes["capped"] == (len(uploaded) / DEVICES if width == 32 else 0)
        assert record.loss == pytest.approx(reference.losses[-1], rel=1e-9)
        np.testing.assert_allclose(simulation.theta, reference.models[-1], rtol=1e-9, atol=1e-10)
        widths.append(width)
        uploads += len(uploaded)
    assert widths[:2] == [b_0, b_0]
    assert len(set(widths)) >= 3
    assert widths[-1] == 32
    assert 2 * DEVICES < uploads < 50 * DEVICES


def test_skips_report_the_loss_too(problem):
    simulation = start(problem, xi=1e9)  # nothing is significant after the first round
    simulation.advance()
    expected = [local(simulation.theta)[0] for local in problem.devices]
    orders = simulation.server.open_round()
    replies = [unpack(d.handle(orders[m])) for m, d in enumerate(simulation.devices)]
    assert all(reply.vector is None for reply in replies)
    assert [reply.scalars["loss"] for reply in replies] == pytest.approx(expected, rel=1e-9)


def test_capped_uploads_are_floats_of_32_bits(problem):
    simulation = start(problem, torch.float32, xi=0.0)
    levels = [set(simulation.advance().levels.values()) for _ in range(60)]
    assert levels[0] == {6}
    assert {32} in levels
