"""QSGD against a numpy implementation of its rule, its bias and its cost."""

import math

import numpy as np
import pytest
import torch

import aquila
from aquila.core.random import Key, Purpose
from helpers.problems import ridge

DEVICES, DIMENSION, SEED = 5, 20, 7

grids = pytest.mark.parametrize(
    ("norm", "bucket"), [("max", 0), ("max", 8), ("l2", 0), ("l2", 6), ("max", 100)]
)


@pytest.fixture(scope="module")
def problem():
    return ridge(devices=DEVICES, dimension=DIMENSION)


def start(problem, share=0.3, seed=SEED, **parameters):
    method = aquila.create("qsgd", alpha=share / problem.smoothness(), **parameters)
    theta0 = torch.ones(DIMENSION, dtype=torch.float64)
    return aquila.Simulation(method, theta0, problem.devices, seed=seed)


def stochastic_round(v, levels, norm, bucket, uniform):
    """Q(v_i) = ||v|| sgn(v_i) (l + 1 or l) / s with l = floor(s |v_i| / ||v||), by buckets."""
    sent, size = np.empty_like(v), bucket or len(v)
    for at in range(0, len(v), size):
        part = v[at : at + size]
        scale = np.max(np.abs(part)) if norm == "max" else np.sqrt(np.sum(part**2))
        for i, x in enumerate(part, start=at):
            low = math.floor(levels * abs(x) / scale)
            chance = levels * abs(x) / scale - low
            level = low + 1 if uniform[i] >= 1 - chance else low
            sent[i] = scale * np.sign(x) * min(level, levels) / levels
    return sent


def mean_gradient(problem, theta):
    return np.mean([local(torch.from_numpy(theta))[1].numpy() for local in problem.devices], axis=0)


@grids
@pytest.mark.parametrize("bits", [2, 6])
def test_qsgd_follows_its_rule_round_by_round(problem, norm, bucket, bits):
    simulation = start(problem, bits=bits, norm=norm, bucket=bucket)
    theta = simulation.theta.numpy().copy()
    for k in range(20):
        record = simulation.advance()
        sent = []
        for m, local in enumerate(problem.devices):
            uniform = Key((SEED, k, m, Purpose.DEVICE)).uniform(torch.from_numpy(theta)).numpy()
            gradient = local(torch.from_numpy(theta))[1].numpy()
            sent.append(stochastic_round(gradient, 2 ** (bits - 1) - 1, norm, bucket, uniform))
        theta = theta - 0.3 / problem.smoothness() * np.mean(sent, axis=0)
        assert record.levels == dict.fromkeys(range(DEVICES), bits)
        np.testing.assert_allclose(simulation.theta, theta, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("norm", "bucket"), [("max", 0), ("max", 8), ("l2", 0)])
def test_expected_step_is_the_gradient_step(problem, norm, bucket):
    runs = []
    for seed in range(200):
        simulation = start(problem, seed=seed, bits=3, norm=norm, bucket=bucket)
        simulation.advance()
        runs.append(simulation.theta.numpy().copy())
    expected = np.ones(DIMENSION)
    expected = expected - 0.3 / problem.smoothness() * mean_gradient(problem, expected)
    spread = np.std(runs, axis=0, ddof=1) / math.sqrt(len(runs))
    assert np.all(spread > 0)
    assert np.all(np.abs(np.mean(runs, axis=0) - expected) < 4.5 * spread)
    # precise enough to distinguish a step from no step
    assert np.linalg.norm(spread) < 0.1 * np.linalg.norm(expected - 1)


@pytest.mark.parametrize("bits", [2, 6, 9])
def test_upload_costs_bits_times_coordinates(problem, bits):
    record = start(problem, bits=bits).advance()
    assert record.paper_bits == bits * DIMENSION * DEVICES
    grid = 2 * 8  # low and step in float64
    body = grid + math.ceil(bits * DIMENSION / 8)
    assert record.uplink_bytes - record.uplink_header_bytes == body * DEVICES


def test_every_bucket_has_its_own_grid(problem):
    one, three = (start(problem, bucket=bucket).advance() for bucket in (0, 8))
    assert three.paper_bits == one.paper_bits
    bodies = [record.uplink_bytes - record.uplink_header_bytes for record in (one, three)]
    assert bodies[1] - bodies[0] == 2 * 2 * 8 * DEVICES


@pytest.mark.parametrize("norm", ["max", "l2"])
def test_six_bits_come_close_to_the_optimum(problem, norm):
    simulation, optimum = start(problem, norm=norm), problem.optimum()
    before = torch.linalg.norm(simulation.theta - optimum)
    for _ in range(200):
        simulation.advance()
    assert torch.linalg.norm(simulation.theta - optimum) < 0.1 * before
