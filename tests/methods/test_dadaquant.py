"""DAdaQuant against numbers computed by hand and a numpy implementation."""

import numpy as np
import pytest
import torch

import aquila
from aquila.core.random import Key, Purpose
from aquila.methods.dadaquant import levels_by_weight
from aquila.sim.oracle import FunctionOracle
from helpers.problems import ridge

DIMENSION, SEED = 20, 6
SAMPLES = [1, 8, 27, 64, 64, 8]


def test_levels_of_devices_by_hand():
    """Weights 1, 8 and 27 have the roots w^(2/3) = 1, 4 and 9, so a = 14 and Σ w² = 794.

    √(a / b) = 4 √(14 / 794) = 0.531 for q = 4, so the levels are max(1, round(0.531, 2.125, 4.78)).
    """
    fleet = aquila.Fleet.uniform(5, 4).with_weights([1, 8, 27, 1000])
    assert levels_by_weight(4, fleet, [0, 1, 2]) == {0: 1, 1: 2, 2: 5}


@pytest.mark.parametrize("q", [1, 2, 16])
def test_equal_weights_have_equal_levels(q):
    fleet = aquila.Fleet.uniform(5, 3).with_weights([7, 7, 7])
    assert levels_by_weight(q, fleet, fleet.devices) == dict.fromkeys(range(3), q)


def test_levels_keep_the_noise_of_the_average():
    """The noise of an average is Σ w² / q²; large levels make rounding negligible."""
    weights = np.array(SAMPLES, float)
    fleet = aquila.Fleet.uniform(5, len(SAMPLES)).with_weights(SAMPLES)
    levels = np.array(list(levels_by_weight(10_000, fleet, fleet.devices).values()), float)
    assert np.sum((weights / levels) ** 2) == pytest.approx(np.sum(weights**2) / 1e8, rel=1e-3)
    assert levels.sum() < 10_000 * len(SAMPLES)


def test_levels_double_when_the_loss_stalls():
    """phi = 3: q doubles after three rounds at one q if the average is not below that of two ago.

    losses    8     4     4      9      9       9       0      0      0      0
    averages  8.0   7.6   7.24   7.416  7.5744  7.7170  6.945  6.251  5.626  5.063
    q after   1     1     1      1      2       2       2      2      2      2
    """
    server = aquila.create("dadaquant", phi=3, q_max=3).server
    state, levels = server.init(torch.zeros(1), aquila.Fleet.uniform(1, 1)), []
    for loss in [8, 4, 4, 9, 9, 9, 0, 0, 0, 0]:
        state = server.with_loss(state, loss)
        levels.append(state.levels)
    assert levels == [1, 1, 1, 1, 2, 2, 2, 2, 2, 2]
    assert state.averages == pytest.approx((6.2508, 5.6257, 5.0631), abs=1e-4)
    for _ in range(4):
        state = server.with_loss(state, 100)
    assert state.levels == 3  # q_max


def rounded(v, levels, uniform):
    """QSGD's quantizer with the maximum norm."""
    x = levels * np.abs(v) / np.max(np.abs(v))
    up = uniform >= 1 - (x - np.floor(x))
    return np.max(np.abs(v)) * np.sign(v) * np.minimum(np.floor(x) + up, levels) / levels


class TimeRule:
    """q of the next round, from the losses so far (Algorithm 1, as in the paper's text)."""

    def __init__(self, q, q_max, phi):
        self.q, self.q_max, self.phi = [q], q_max, phi
        self.averages = []

    def add(self, loss):
        last = self.averages[-1] if self.averages else loss
        self.averages.append(0.9 * last + 0.1 * loss)
        t, q = len(self.averages) - 1, self.q[-1]
        same = t + 1 >= self.phi and set(self.q[t + 1 - self.phi :]) == {q}
        stalled = same and self.averages[t] >= self.averages[t + 1 - self.phi]
        self.q.append(min(2 * q, self.q_max) if stalled else q)


@pytest.mark.parametrize("adapt", ["time", "client", "both"])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_follows_its_rule_round_by_round(adapt, fraction):
    problem = ridge(devices=len(SAMPLES), dimension=DIMENSION)
    alpha, rule = 0.3 / problem.smoothness(), TimeRule(8 if adapt == "client" else 2, 8, 4)
    devices = [FunctionOracle(f, n) for f, n in zip(problem.devices, SAMPLES, strict=True)]
    method = aquila.create(
        "dadaquant", alpha=alpha, adapt=adapt, q_min=2, q_max=8, phi=4, fraction=fraction
    )
    simulation = aquila.Simulation(
        method, problem.optimum(), devices, SEED,
        aquila.RunOptions(weights="samples"),
    )  # fmt: skip
    theta, seen = problem.optimum().numpy(), set()  # the loss soon stops falling
    for k in range(120):
        record = simulation.advance()
        chosen = sorted(record.levels)
        weights = np.array([SAMPLES[m] for m in chosen], float)
        share = weights / weights.sum()
        q = np.full(len(chosen), rule.q[-1])
        if adapt != "time":
            scale = np.sqrt(np.sum(share ** (2 / 3)) / np.sum(share**2 / rule.q[-1] ** 2))
            q = np.maximum(1, np.round(scale * share ** (2 / 3)))
        at, sent, losses = torch.from_numpy(theta), [], []
        for m, levels in zip(chosen, q, strict=True):
            loss, gradient = problem.local(m, at)
            uniform = Key((SEED, k, m, Purpose.DEVICE)).uniform(at).numpy()
            sent.append(rounded(gradient.numpy(), levels, uniform))
            losses.append(loss)
        theta = theta - alpha * share @ np.stack(sent)
        rule.add(float(share @ np.array(losses)))
        seen |= set(q.tolist())
        np.testing.assert_allclose(simulation.theta, theta, rtol=1e-8, atol=1e-10)
        assert record.levels == {
            m: int(np.ceil(np.log2(2 * n + 1))) for m, n in zip(chosen, q, strict=True)
        }
    assert simulation.server.state.levels == rule.q[-1]
    assert rule.q[-1] > 2
    assert len(seen) > 1


def test_wrong_range_is_refused():
    with pytest.raises(ValueError, match=r"^dadaquant: q_max must be at least q_min, 8, not 4$"):
        aquila.create("dadaquant", q_min=8, q_max=4)
