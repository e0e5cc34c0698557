"""EDEN is unbiased, its error is that of its formulas, and its seeds are checked."""

import math
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
import torch

import aquila
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.random import Key
from aquila.core.rotation import rotate, unrotate_
from aquila.core.wire import pack
from aquila.methods.eden import NORMAL_STEPS
from aquila.sim.oracle import FunctionOracle


def normal(dimension):
    generator = torch.Generator().manual_seed(dimension)
    return torch.randn(dimension, generator=generator, dtype=torch.float64)


def estimates(gradient, count, **parameters):
    """Yield the gradient that the server decodes, `count` times with different rotations."""
    method = aquila.create("eden", alpha=1.0, **parameters)
    fleet, theta = aquila.Fleet.uniform(len(gradient), 1), torch.zeros_like(gradient)
    oracle = FunctionOracle(lambda at: (0.0, gradient))
    state = method.server.init(theta, fleet)
    for number in range(count):
        order = Packet(0, Dense(theta))
        turn = method.device.step(method.device.init(theta), order, oracle, Key((number,)))
        yield method.server.update(state, fleet, {0: turn.reply})[1]


def relative_error(gradient, estimate):
    return float((estimate - gradient).square().sum() / gradient.square().sum())


def normal_error(bits, step):
    """Squared error of a unit normal number on the clipped grid, with the unbiased scale.

    ω = E[Q²] / E[x Q]² - 1. The integral of x over an interval is the difference of the density.
    """
    normal, half = NormalDist(), 2 ** (bits - 1)
    ends = [i * step for i in range(half)] + [math.inf]
    x_q = q_q = 0.0
    for i, (low, high) in enumerate(pairwise(ends)):
        level = (i + 0.5) * step
        x_q += 2 * level * (normal.pdf(low) - normal.pdf(high))
        q_q += 2 * level**2 * (normal.cdf(high) - normal.cdf(low))
    return q_q / x_q**2 - 1


@pytest.mark.parametrize(("dimension", "parameters", "most"), [
    (64, {}, 0.08), (100, {}, 0.08), (100, {"bits": 3}, 0.02), (100, {"density": 0.25}, 0.12),
])  # fmt: skip
def test_is_unbiased(dimension, parameters, most):
    gradient = normal(dimension)
    mean = sum(estimates(gradient, 1000, **parameters)) / 1000
    # one upload of one bit has a relative error of sqrt(pi/2 - 1) = 0.76; the mean of a thousand
    # unbiased ones 0.024, and at a quarter of a bit 0.073. Random signs and one Hadamard transform
    # are not quite a uniform rotation.
    assert (mean - gradient).norm() < most * gradient.norm()


@pytest.mark.parametrize("bits", NORMAL_STEPS)
def test_table_has_the_best_steps(bits):
    step = NORMAL_STEPS[bits]
    best = normal_error(bits, step)
    assert best < min(normal_error(bits, factor * step) for factor in (0.999, 1.001))


@pytest.mark.parametrize(("bits", "known"), [(2, 0.135), (3, 0.039), (4, 0.012)])
def test_error_of_the_table(bits, known):
    assert normal_error(bits, NORMAL_STEPS[bits]) == pytest.approx(known, abs=5e-4)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6])
def test_error_is_that_of_a_normal_sample(bits):
    expected = math.pi / 2 - 1 if bits == 1 else normal_error(bits, NORMAL_STEPS[bits])
    gradient = normal(2**16)
    errors = [relative_error(gradient, estimate) for estimate in estimates(gradient, 5, bits=bits)]
    assert sum(errors) / 5 == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("gradient", [normal(4096), normal(4096) ** 5])
@pytest.mark.parametrize("density", [0.5, 0.1])
def test_error_below_one_bit(gradient, density):
    """The error is that of the formula, however uneven the gradient is."""
    errors = [relative_error(gradient, one) for one in estimates(gradient, 5, density=density)]
    assert np.mean(errors) == pytest.approx(math.pi / (2 * density) - 1, rel=0.05)


def test_drawn_signs_by_hand():
    """The server decodes (1/p) S sign(r_i) on the drawn coordinates, S = ||g||² / ||r||_1."""
    gradient, method = normal(50), aquila.create("eden", density=0.2)
    order, oracle = Packet(0, Dense(gradient)), FunctionOracle(lambda at: (0.0, gradient))
    reply = method.device.step(method.device.init(gradient), order, oracle, Key((9,))).reply
    key = Key((int(reply.scalar("seed")),))
    r = rotate(gradient, key)
    decoded = rotate(method.server.decode(reply), key)
    drawn = decoded.abs() > 1e-9
    assert int(drawn.sum()) == 10
    expected = 5 * gradient.square().sum() / r.abs().sum() * r.sign()
    torch.testing.assert_close(decoded[drawn], expected[drawn])
    torch.testing.assert_close(unrotate_(decoded, key), method.server.decode(reply))


@pytest.mark.parametrize("density", [0.5, 0.1, 0.01])
def test_frame_below_one_bit_is_little_more_than_its_signs(density):
    gradient = normal(2**18).float()
    method = aquila.create("eden", density=density)
    order, oracle = Packet(0, Dense(gradient)), FunctionOracle(lambda at: (0.0, gradient))
    reply = method.device.step(method.device.init(gradient), order, oracle, Key((1,))).reply
    assert len(pack(reply)) < density * 2**18 / 8 + 400


def test_share_of_several_bits_is_refused():
    with pytest.raises(ValueError, match=r"^eden: density below 1 needs bits=1, not bits=2$"):
        aquila.create("eden", bits=2, density=0.5)


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
