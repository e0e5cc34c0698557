"""Both versions of AdaQuantFL against numpy implementations of their rules."""

import math

import numpy as np
import pytest
import torch

import aquila
from aquila.core.random import Key, Purpose
from helpers.problems import Ridge, ridge

DEVICES, DIMENSION, SEED = 4, 20, 5


@pytest.fixture(scope="module")
def problem():
    """One optimum for all devices, with a loss of zero."""
    blocks = ridge(devices=DEVICES, dimension=DIMENSION, rows=60).blocks
    truth = torch.linspace(-1, 2, DIMENSION, dtype=torch.float64)
    return Ridge(blocks, [A @ truth for A in blocks], weight=0.0)


def stochastic_round(v, levels, uniform):
    """QSGD's quantizer with the maximum norm."""
    x = levels * np.abs(v) / np.max(np.abs(v))
    floor = np.floor(x)
    up = uniform >= 1 - (x - floor)
    return np.max(np.abs(v)) * np.sign(v) * np.minimum(floor + up, levels) / levels


class Reference:
    """AdaQuantFL in numpy; `size` turns a number of bits or levels into (width, levels)."""

    def __init__(self, problem, alpha, start, size):
        self.problem, self.alpha, self.start, self.size = problem, alpha, start, size
        self.theta = np.zeros(DIMENSION)
        self.losses = []

    def advance(self):
        """Run a round; return the width of the rule before it is capped."""
        k = len(self.losses)
        growth = math.sqrt(self.losses[0] / self.losses[k - 1]) if k else 1.0
        width, levels = self.size(self.start * growth)
        theta, sent, losses = torch.from_numpy(self.theta), [], []
        for m, local in enumerate(self.problem.devices):
            loss, gradient = local(theta)
            uniform = Key((SEED, k, m, Purpose.DEVICE)).uniform(theta).numpy()
            v = gradient.numpy()
            sent.append(v if width >= 32 else stochastic_round(v, levels, uniform))
            losses.append(loss)
        self.losses.append(np.mean(losses))
        self.theta = self.theta - self.alpha * np.mean(sent, axis=0)
        return width


def by_bits(size):
    """b_k = floor(b_0 sqrt(f_0 / f_k-1)): a sign, and 2^(b-1) - 1 levels."""
    bits = math.floor(size)
    return bits, 2 ** (bits - 1) - 1


def by_levels(size):
    """s_k = ceil(s_0 sqrt(F_0 / F_k-1)): 2 s + 1 values take ceil(log2(2 s + 1)) bits."""
    levels = math.ceil(size)
    return math.ceil(math.log2(2 * levels + 1)), levels


def step_size(problem):
    return 0.3 / problem.smoothness()


def start(name, problem, dtype=torch.float64, **parameters):
    method = aquila.create(name, alpha=step_size(problem), **parameters)
    theta0 = torch.zeros(DIMENSION, dtype=dtype)
    return aquila.Simulation(method, theta0, problem.devices, seed=SEED)


def run_and_compare(simulation, reference, rounds):
    """Run both, compare every round, and return the widths of the rule."""
    widths = []
    for _ in range(rounds):
        width = reference.advance()
        record = simulation.advance()
        capped = width >= 32
        assert record.levels == dict.fromkeys(range(DEVICES), 64 if capped else width)
        assert record.notes["capped"] == float(capped)
        assert record.loss == pytest.approx(reference.losses[-1], rel=1e-9)
        np.testing.assert_allclose(simulation.theta, reference.theta, rtol=1e-9, atol=1e-11)
        widths.append(width)
    return widths


@pytest.mark.parametrize("b_0", [2, 6])
def test_bits_follow_the_rule_round_by_round(problem, b_0):
    simulation = start("adaquantfl", problem, b_0=b_0)
    reference = Reference(problem, step_size(problem), b_0, by_bits)
    widths = run_and_compare(simulation, reference, rounds=60)
    assert widths[:2] == [
        b_0,
        b_0,
    ]  # no loss is known in round 0; in round 1 the first loss is the latest
    assert len({width for width in widths if width < 32}) >= 3
    assert widths[-1] > 32


@pytest.mark.parametrize("s_0", [1, 4])
def test_levels_follow_the_rule_round_by_round(problem, s_0):
    simulation = start("adaquantfl_levels", problem, s_0=s_0)
    reference = Reference(problem, step_size(problem), s_0, by_levels)
    widths = run_and_compare(simulation, reference, rounds=60)
    assert widths[0] == {1: 2, 4: 4}[s_0]
    assert len(set(widths)) >= 3
    assert widths[-1] < 32


def test_levels_are_capped_too(problem):
    simulation = start("adaquantfl_levels", problem, s_0=2**28)
    reference = Reference(problem, step_size(problem), 2**28, by_levels)
    widths = run_and_compare(simulation, reference, rounds=40)
    assert widths[0] == 30
    assert widths[-1] >= 32


def test_capped_uploads_are_floats_of_32_bits(problem):
    simulation = start("adaquantfl", problem, torch.float32, b_0=6)
    records = [simulation.advance() for _ in range(60)]
    widths = [set(record.levels.values()) for record in records]
    assert all(len(width) == 1 for width in widths)
    assert widths[0] == {6}
    assert widths[-1] == {32}
    last = records[-1]
    assert last.notes["capped"] == 1.0
    assert last.error_ratio == 0.0
    assert last.paper_bits == 32 * DIMENSION * DEVICES
    assert records[0].notes["capped"] == 0.0
    assert records[0].error_ratio > 0.0


@pytest.mark.parametrize("name", ["adaquantfl", "adaquantfl_levels"])
@pytest.mark.parametrize("floor", [0.0, -1.0])
def test_vanishing_loss_gives_the_widest_upload(name, floor):
    device = [lambda theta: (float(theta @ theta) / 2 + floor * bool((theta < 1).all()), theta)]
    run = aquila.simulate(
        aquila.create(name, alpha=1.0), torch.full((4,), 3.0, dtype=torch.float64), device, rounds=6
    )
    assert run.records[-1].notes["capped"] == 1.0
