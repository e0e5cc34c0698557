"""EDEN is unbiased, its error falls with the bits, and its seeds are checked."""

import math

import pytest
import torch

import aquila
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.random import Key
from aquila.sim.oracle import FunctionOracle


def normal(dimension):
    generator = torch.Generator().manual_seed(dimension)
    return torch.randn(dimension, generator=generator, dtype=torch.float64)


def estimates(gradient, bits, count):
    """Yield the gradient that the server decodes, `count` times with different rotations."""
    method = aquila.create("eden", alpha=1.0, bits=bits)
    fleet, theta = aquila.Fleet.uniform(len(gradient), 1), torch.zeros_like(gradient)
    oracle = FunctionOracle(lambda at: (0.0, gradient))
    state = method.server.init(theta, fleet)
    for number in range(count):
        order = Packet(0, Dense(theta))
        turn = method.device.step(method.device.init(theta), order, oracle, Key((number,)))
        yield method.server.update(state, fleet, {0: turn.reply})[1]


@pytest.mark.parametrize("dimension", [64, 100])
def test_is_unbiased(dimension):
    gradient = normal(dimension)
    mean = sum(estimates(gradient, 1, 1000)) / 1000
    # one upload has a relative error of sqrt(pi/2 - 1) = 0.76; the mean of a thousand unbiased ones
    # 0.024. Random signs and one Hadamard transform are not quite a uniform rotation.
    assert (mean - gradient).norm() < 0.08 * gradient.norm()


@pytest.mark.parametrize(("bits", "most"), [(1, 0.62), (3, 0.2), (5, 0.012), (8, 2e-4)])
def test_error_falls_with_the_bits(bits, most):
    gradient = normal(4096)
    for estimate in estimates(gradient, bits, 5):
        assert (estimate - gradient).square().sum() < most * gradient.square().sum()


@pytest.mark.parametrize("seed", [-1.0, 0.5, 2.0**48, math.nan])
def test_reply_without_a_valid_seed_is_refused(seed):
    server = aquila.create("eden").server
    server.check(Packet(0))
    with pytest.raises(
        WireError, match=r"seed of a reply must be a whole number from 0 to \d+, not"
    ):
        server.check(Packet(0, Dense(torch.ones(3)), {"seed": seed}))
    with pytest.raises(WireError, match="seed"):
        server.check(Packet(0, Dense(torch.ones(3))))
