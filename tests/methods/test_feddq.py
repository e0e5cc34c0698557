"""FedDQ against numbers computed by hand and a numpy version of its rule."""

import math

import numpy as np
import pytest
import torch

import aquila
from aquila.methods.feddq import bits_for_range, quantize
from helpers.layered import FixedGradient, layered_run

SHAPES = [(2, 2), (3,)]
GRADIENT = torch.tensor([0.0, 0.3, 0.7, 1.0, -0.2, 0.0, 0.1], dtype=torch.float64)


def in_numpy(v, resolution):
    """The rule for one tensor, with the grid at its minimum."""
    size = v.max() - v.min()
    b = max(1, math.ceil(math.log2(size / resolution)))
    step = size / (2**b - 1)
    return v.min() + step * np.rint((v - v.min()) / step), b


@pytest.mark.parametrize(
    ("size", "bits"),
    [(1, 4), (0.8, 3), (0.79, 3), (0.81, 4), (0.2, 1), (0.1, 1), (0.01, 1), (0, 1), (1e30, 24)],
)
def test_bits_follow_the_range(size, bits):
    assert bits_for_range(size, 0.1) == bits


def test_upload_by_hand():
    """Ranges 1 and 0.3 at a resolution of 0.16: 3 bits and 1 bit, steps 1/7 and 0.3."""
    grids = quantize(GRADIENT, 0.16, tuple(map(torch.Size, SHAPES)))
    assert grids.codes.tolist() == [0, 2, 5, 7, 0, 1, 1]
    assert grids.bits == 3
    expected = [0, 2 / 7, 5 / 7, 1, -0.2, 0.1, 0.1]
    torch.testing.assert_close(grids.decode(), torch.tensor(expected, dtype=torch.float64))


def test_run_follows_the_rule_with_the_range_of_the_model_update():
    """The resolution is that of α times the upload."""
    generator, alpha, resolution = np.random.default_rng(0), 0.1, 0.004
    gradients = generator.normal(size=(3, 7)) * [1, 1, 1, 1, 0.1, 0.1, 0.1]
    method = aquila.create("feddq", alpha=alpha, resolution=resolution)
    run = layered_run(method, [FixedGradient(torch.from_numpy(g), SHAPES) for g in gradients])
    record = run.advance()
    sent, bits = [], {}
    for m, gradient in enumerate(gradients):
        parts = [in_numpy(part, resolution / alpha) for part in np.split(gradient, [4])]
        sent.append(np.concatenate([values for values, _ in parts]))
        bits[m] = max(b for _, b in parts)
    np.testing.assert_allclose(run.theta, -alpha * np.mean(sent, axis=0), rtol=1e-12)
    assert record.levels == bits
    assert len(set(bits.values())) > 1


def test_resolution_is_that_of_the_scheduled_step():
    """The range is 1. At α = 0.1 the resolution is 0.16, 3 bits; at α / 2 it is 0.32, 2 bits."""
    method = aquila.create("feddq", alpha=0.1, resolution=0.016)
    run = layered_run(method, [FixedGradient(GRADIENT, SHAPES)], schedule="steps:1:0.5")
    assert [run.advance().levels[0] for _ in range(2)] == [3, 2]


def test_tensors_of_one_sign_are_not_clipped():
    v = torch.linspace(1.0, 2.0, 50)
    error = (quantize(v, 0.05, (torch.Size([50]),)).decode() - v).abs()
    assert float(error.max()) <= 1 / 31 / 2 * 1.0001


def test_constant_tensors_are_exact_and_a_zero_update_is_a_skip():
    v = torch.tensor([3.0, 3.0, 0.0, 0.0])
    shapes = (torch.Size([2]), torch.Size([2]))
    assert quantize(v, 0.1, shapes).decode().tolist() == v.tolist()
    run = layered_run(aquila.create("feddq"), [FixedGradient(torch.zeros(7), SHAPES)])
    assert run.advance().skips == 1


def test_bits_fall_as_the_updates_shrink():
    def device(theta):
        return float(theta @ theta) / 2, theta

    theta = torch.linspace(-1, 1, 40)
    run = aquila.simulate(aquila.create("feddq", alpha=0.5, resolution=0.01), theta, [device], 12)
    bits = [record.levels[0] for record in run.records]
    assert bits == sorted(bits, reverse=True)
    assert (bits[0], bits[-1]) == (7, 1)
