"""FedPAQ against a numpy implementation: rounded differences of locally trained models."""

import numpy as np
import pytest
import torch

import aquila
from aquila.core.random import Key, Purpose
from aquila.sim.oracle import FunctionOracle
from helpers.problems import ridge

DIMENSION, DEVICES, SEED = 20, 10, 4


def trained(problem, m, theta, alpha, steps):
    """Return the model of a device after its local steps."""
    for _ in range(steps):
        theta = theta - alpha * problem.local(m, torch.from_numpy(theta))[1].numpy()
    return theta


def rounded(v, levels, norm, uniform):
    """QSGD's quantizer (FedPAQ, Example 1): |v_i| / norm, rounded to a multiple of 1 / levels."""
    scale = np.linalg.norm(v) if norm == "l2" else np.max(np.abs(v))
    x = levels * np.abs(v) / scale
    up = uniform >= 1 - (x - np.floor(x))
    return scale * np.sign(v) * np.minimum(np.floor(x) + up, levels) / levels


@pytest.mark.parametrize(("bits", "norm", "fraction"), [(4, "max", 1.0), (2, "l2", 0.3)])
@pytest.mark.parametrize("steps", [1, 5])
def test_follows_its_algorithm_round_by_round(bits, norm, fraction, steps):
    problem = ridge(devices=DEVICES, dimension=DIMENSION)
    alpha = 0.1 / problem.smoothness()
    devices = [FunctionOracle(local, 1, steps) for local in problem.devices]
    method = aquila.create("fedpaq", alpha=alpha, bits=bits, norm=norm, fraction=fraction)
    simulation = aquila.Simulation(method, torch.zeros(DIMENSION).double(), devices, SEED)
    theta = np.zeros(DIMENSION)
    for k in range(15):
        chosen = sorted(simulation.advance().levels)
        assert len(chosen) == fraction * DEVICES
        differences = []
        for m in chosen:
            key = Key((SEED, k, m, Purpose.DEVICE))
            uniform = key.uniform(torch.zeros(DIMENSION).double()).numpy()
            v = (theta - trained(problem, m, theta, alpha, steps)) / alpha
            differences.append(rounded(v, 2 ** (bits - 1) - 1, norm, uniform))
        theta = theta - alpha * np.mean(differences, axis=0)
        np.testing.assert_allclose(simulation.theta, theta, rtol=1e-8, atol=1e-10)


def test_fraction_and_bits_of_a_round():
    problem = ridge(devices=DEVICES, dimension=DIMENSION)
    method = aquila.create("fedpaq", alpha=0.01, bits=3, fraction=0.5)
    record = aquila.Simulation(method, torch.zeros(DIMENSION), problem.devices).advance()
    assert set(record.levels.values()) == {3}
    assert record.paper_bits == 5 * 3 * DIMENSION
