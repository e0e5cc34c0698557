"""MARINA against a numpy implementation: full rounds, differences, stale devices, minibatches."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import aquila
from aquila.core.random import Key, Purpose
from aquila.sim.link import Link
from aquila.sim.oracle import FunctionOracle
from helpers.problems import Ridge, ridge

DEVICES, DIMENSION, SEED = 6, 20, 3


@pytest.fixture(scope="module")
def problem():
    return ridge(devices=DEVICES, dimension=DIMENSION)


@dataclass(frozen=True)
class Minibatches:
    """A shard that draws half of its rows for each round."""

    problem: Ridge
    device: int

    def oracle(self, key):
        A, y = self.problem.blocks[self.device], self.problem.targets[self.device]
        rows = torch.from_numpy(key.numpy().permutation(len(y))[: len(y) // 2])
        return FunctionOracle(Ridge([A[rows]], [y[rows]], self.problem.weight).devices[0])


def stochastic_round(v, levels, uniform):
    """QSGD's quantizer with the maximum norm."""
    x = levels * np.abs(v) / np.max(np.abs(v))
    floor = np.floor(x)
    up = uniform >= 1 - (x - floor)
    return np.max(np.abs(v)) * np.sign(v) * np.minimum(floor + up, levels) / levels


class Reference:
    """MARINA in numpy; the link decides which messages are lost."""

    def __init__(self, shards, theta0, alpha, bits, p, link):
        self.shards, self.theta, self.alpha = shards, theta0, alpha
        self.bits, self.p, self.link = bits, p, link
        self.g = np.zeros_like(theta0)
        self.seen = [None] * len(shards)  # last model of each device, and its round
        self.round = 0

    def advance(self):
        """Run a round; return whether it is full, who uploaded, and who was stale."""
        k, uploads, stale = self.round, {}, set()
        full = k == 0 or Key((SEED, k, Purpose.SERVER)).numpy().random() < self.p
        for m, shard in enumerate(self.shards):
            if not self.link.order_arrives(Key((SEED, k, m, Purpose.LINK))):
                continue
            gradient = self.gradient_on_batch_of(k, m, shard)
            last, self.seen[m] = self.seen[m], (self.theta, k)
            if not self.link.reply_arrives(Key((SEED, k, m, Purpose.LINK))):
                continue
            if full:
                uploads[m] = gradient(self.theta)
            elif last is None or last[1] != k - 1:
                stale.add(m)
            else:
                key = Key((SEED, k, m, Purpose.DEVICE))
                uniform = key.uniform(torch.from_numpy(self.theta)).numpy()
                change = gradient(self.theta) - gradient(last[0])
                uploads[m] = stochastic_round(change, 2 ** (self.bits - 1) - 1, uniform)
        if uploads:
            mean = np.mean(list(uploads.values()), axis=0)
            self.g = mean if full else self.g + mean
        self.theta = self.theta - self.alpha * self.g
        self.round += 1
        return full, set(uploads), stale

    @staticmethod
    def gradient_on_batch_of(k, m, shard):
        if callable(shard):
            oracle = FunctionOracle(shard)
        else:
            oracle = shard.oracle(Key((SEED, k, m, Purpose.DATA)))
        return lambda theta: oracle.gradient(torch.from_numpy(theta))[1].numpy()


def step_size(problem):
    return 0.3 / problem.smoothness()


def start(problem, shards=None, options=aquila.RunOptions(), **parameters):
    method = aquila.create("marina", alpha=step_size(problem), **parameters)
    theta0 = torch.zeros(DIMENSION, dtype=torch.float64)
    return aquila.Simulation(method, theta0, shards or problem.devices, seed=SEED, options=options)


def batches(problem):
    return [Minibatches(problem, m) for m in range(DEVICES)]


@pytest.mark.parametrize("minibatches", [False, True])
@pytest.mark.parametrize("link", [Link(), Link(uplink_loss=0.1, downlink_loss=0.2)], ids=str)
def test_marina_follows_its_rule_round_by_round(problem, minibatches, link):
    shards = batches(problem) if minibatches else problem.devices
    options = aquila.RunOptions(uplink_loss=link.uplink_loss, downlink_loss=link.downlink_loss)
    simulation = start(problem, shards, options, bits=6, p=0.15)
    reference = Reference(
        shards, np.zeros(DIMENSION), step_size(problem), bits=6, p=0.15, link=link
    )
    fulls = stales = 0
    for _ in range(60):
        full, uploaded, stale = reference.advance()
        record = simulation.advance()
        assert record.levels == dict.fromkeys(uploaded, 64 if full else 6)
        assert record.skips == len(stale)
        assert record.lost == DEVICES - len(uploaded) - len(stale)
        np.testing.assert_allclose(simulation.theta, reference.theta, rtol=1e-9, atol=1e-11)
        fulls, stales = fulls + full, stales + len(stale)
    assert 3 < fulls < 30
    assert (stales > 20) == (link.downlink_loss > 0)


def test_a_round_is_full_for_all_devices_or_none(problem):
    simulation = start(problem, p=0.5)
    rounds = [simulation.advance().levels for _ in range(40)]
    assert all(len(levels) == DEVICES for levels in rounds)
    widths = [set(levels.values()) for levels in rounds]
    assert all(width in ({6}, {64}) for width in widths)
    assert 10 < widths.count({64}) < 30


def test_with_probability_zero_only_the_first_round_is_full(problem):
    simulation = start(problem, p=0.0)
    levels = [simulation.advance().levels for _ in range(40)]
    assert levels[0] == dict.fromkeys(range(DEVICES), 64)
    assert levels[1:] == [dict.fromkeys(range(DEVICES), 6)] * 39


@pytest.mark.parametrize(("p", "bits", "accuracy"), [(0.0, 30, 1e-7), (1.0, 6, 1e-12)])
def test_exact_differences_add_up_to_gradient_descent(problem, p, bits, accuracy):
    simulation = start(problem, p=p, bits=bits)
    theta = torch.zeros(DIMENSION, dtype=torch.float64)
    for _ in range(50):
        simulation.advance()
        gradient = sum(local(theta)[1] for local in problem.devices) / DEVICES
        theta = theta - step_size(problem) * gradient
        torch.testing.assert_close(simulation.theta, theta, rtol=accuracy, atol=accuracy)


def test_device_that_missed_an_order_sends_no_change_for_one_round(problem):
    class OneGap(Link):
        def order_arrives(self, key):
            return key.path[1:3] != (5, 2)  # device 2 misses the order of round 5

    simulation = start(problem, p=0.0)
    simulation.link = OneGap()
    records = [simulation.advance() for _ in range(9)]
    missing = [set(range(DEVICES)) - set(record.levels) for record in records]
    assert missing == [set()] * 5 + [{2}, {2}] + [set()] * 2
    assert [record.lost for record in records] == [0] * 5 + [1] + [0] * 3
    assert [record.skips for record in records] == [0] * 6 + [1] + [0] * 2


def test_both_points_are_evaluated_on_the_same_minibatch(problem):
    asked = {}

    @dataclass(frozen=True)
    class Spy:
        inner: Minibatches

        def oracle(self, key):
            oracle = self.inner.oracle(key)

            def gradient(theta):
                asked.setdefault(key.path, []).append(theta.numpy().copy())
                return oracle.gradient(theta)

            return FunctionOracle(gradient)

    simulation = start(problem, [Spy(shard) for shard in batches(problem)], p=0.0)
    models = [simulation.theta.numpy().copy()]
    for _ in range(4):
        simulation.advance()
        models.append(simulation.theta.numpy().copy())
    assert len(asked) == 4 * DEVICES  # one draw per device and round
    for (_, k, _, _), points in asked.items():
        assert len(points) == (1 if k == 0 else 2)
        np.testing.assert_array_equal(
            sorted(map(tuple, points)), sorted(map(tuple, models[max(k - 1, 0) : k + 1]))
        )


@pytest.mark.parametrize(
    ("bits", "bucket", "expected"),
    [
        (6, 0, 1 / (1 + 20 / 31**2)),  # n / s² is below √n / s
        (2, 0, 1 / (1 + np.sqrt(20))),  # one level: √n
        (2, 4, 1 / (1 + 2)),
        (2, 999, 1 / (1 + np.sqrt(20))),
    ],
)
def test_probability_of_the_authors(problem, bits, bucket, expected):
    simulation = start(problem, bits=bits, bucket=bucket, p_rule="authors")
    assert simulation.server.half.p.probability(DIMENSION) == pytest.approx(expected)


def test_full_rounds_are_as_frequent_as_their_probability(problem):
    simulation = start(problem, bits=2, bucket=4, p_rule="authors")
    full = [set(simulation.advance().levels.values()) == {64} for _ in range(300)]
    assert np.mean(full) == pytest.approx(1 / 3, abs=0.09)
