"""Quantizers against direct transcriptions of their formulas."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aquila.core.packet import Codes, Dense
from aquila.core.quantize import (
    bits_for_levels,
    levels_for_bits,
    midrise,
    midrise_or_dense,
    midtread,
    sparse,
    stochastic_round,
    stochastic_sparse,
)
from aquila.core.random import Key

EPS64 = np.finfo(np.float64).eps
EPS32 = float(np.finfo(np.float32).eps)
WIDTHS = st.integers(1, 32)
DENSITIES = st.floats(0.001, 0.7)
STABLE = settings(deadline=None, derandomize=True, max_examples=300)


def vectors(limit, width):
    return st.lists(st.floats(-limit, limit, width=width), min_size=1, max_size=30)


def normal(dimension, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(dimension, generator=generator, dtype=dtype)


def definition_2(v, bits):
    """Return psi before the floor, and dq, as in the paper."""
    R = np.abs(v).max()
    tau = 1 / (2.0**bits - 1)
    unrounded = (v + R) / (2 * tau * R) + 0.5
    return unrounded, 2 * tau * R * np.floor(unrounded) - R


@STABLE
@given(vectors(1e100, 64), WIDTHS)
def test_midrise_is_definition_2(numbers, bits):
    v = np.array(numbers)
    R = np.abs(v).max()
    assume(R > 1e-280)
    unrounded, dq = definition_2(v, bits)
    codes = midrise(torch.from_numpy(v), bits)
    # rounding may change the code only where the formula is at the border of two codes
    edge = np.abs(unrounded - np.round(unrounded)) <= 8 * EPS64 * 2.0**bits
    psi = codes.codes.numpy().astype(np.float64)
    assert (edge | (psi == np.floor(unrounded))).all()
    assert (np.abs(psi - np.floor(unrounded)) <= 1).all()
    decoded = codes.decode().numpy()
    np.testing.assert_allclose(decoded[~edge], dq[~edge], rtol=0, atol=8 * EPS64 * R)


@STABLE
@given(vectors(1e100, 64), WIDTHS)
def test_error_of_midrise_in_float64_is_at_most_tau_R(numbers, bits):
    v = torch.tensor(numbers, dtype=torch.float64)
    R = float(v.abs().max())
    assume(R > 1e-280)
    error = (midrise(v, bits).decode() - v).abs().max()
    assert error <= R / (2**bits - 1) + 4 * EPS64 * R


@STABLE
@given(vectors(2.0**100, 32), WIDTHS)
def test_error_of_midrise_in_float32_is_at_most_tau_R_and_rounding(numbers, bits):
    v = torch.tensor(numbers, dtype=torch.float32)
    R = float(v.abs().max())
    assume(R > 1e-25)
    codes = midrise(v, bits)
    assert int(codes.codes.min()) >= 0
    assert int(codes.codes.max()) < 2**bits
    error = (codes.decode().double() - v.double()).abs().max()
    assert error <= R / (2**bits - 1) + 4 * EPS32 * R


def test_midrise_by_hand():
    # R = 1, tau = 1/3, grid -1, -1/3, 1/3, 1
    codes = midrise(torch.tensor([1.0, -1.0, 0.2, -0.1], dtype=torch.float64), 2)
    assert codes.codes.tolist() == [3, 0, 2, 1]
    np.testing.assert_allclose(codes.decode().numpy(), [1, -1, 1 / 3, -1 / 3], rtol=1e-15)


@pytest.mark.parametrize("bits", [1, 8, 31, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_midrise_keeps_the_ends_of_the_range(bits, dtype):
    codes = midrise(torch.tensor([-2.0, 2.0], dtype=dtype), bits)
    assert codes.low.dtype == codes.step.dtype == dtype
    np.testing.assert_allclose(codes.decode().numpy(), [-2.0, 2.0], rtol=4 * EPS32)


@pytest.mark.parametrize("zero", [[0.0], [0.0, -0.0], []])
def test_zero_vector_has_no_grid(zero):
    assert midrise(torch.tensor(zero), 4) is None


def test_range_whose_step_underflows_has_no_grid():
    assert midrise(torch.tensor([1e-45, 0.0]), 8) is None


def test_midtread_by_hand():
    """The range is 3.5, so both grids have the step 2 · 3.5 / 7 = 1. Only one contains zero."""
    v = torch.tensor([3.5, 1.4, 0.4, -0.6, 0.0, -3.5], dtype=torch.float64)
    assert midrise(v, 3).decode().tolist() == [3.5, 1.5, 0.5, -0.5, 0.5, -3.5]
    with_zero = midtread(v, 3)
    assert with_zero.decode().tolist() == [3, 1, 0, -1, 0, -3]
    assert with_zero.bits == 3
    assert midtread(torch.zeros(4), 3) is None


def test_vector_itself_is_sent_from_32_bits_on():
    v = normal(5)
    assert isinstance(midrise_or_dense(v, 31), Codes)
    assert midrise_or_dense(torch.zeros(5), 31) is None
    dense = midrise_or_dense(v, 32)
    assert isinstance(dense, Dense)
    assert dense.decode() is v


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("bucket", [0, 7, 512])
@pytest.mark.parametrize("levels", [1, 7])
def test_stochastic_round_is_unbiased(levels, bucket, norm, dtype):
    tile, copies = normal(30, seed=4, dtype=dtype), 10_000
    v = tile.repeat(copies)
    codes = stochastic_round(v, levels, Key((1, 2)), norm, bucket)
    mean = codes.decode().double().reshape(copies, -1).mean(0)
    # a coordinate rounded up with probability p has variance p (1 - p) step^2
    step = codes.step.double().repeat_interleave(codes.bucket)[: len(v)]
    p = (v.double().abs() / step).frac()
    deviation = (p * (1 - p) * step**2).reshape(copies, -1).mean(0).div(copies).sqrt()
    assert deviation.max() > 0
    assert ((mean - tile.double()).abs() <= 5 * deviation + 1e-6).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("bits", range(2, 33))
def test_stochastic_round_stays_in_range_and_within_one_step(bits, norm, dtype):
    v = normal(100, seed=bits, dtype=dtype)
    v = torch.cat((v, -v))  # both signs of the largest coordinate
    codes = stochastic_round(v, levels_for_bits(bits), Key((bits,)), norm)
    assert codes.bits == bits
    assert int(codes.codes.min()) >= 0
    assert int(codes.codes.max()) <= 2 * levels_for_bits(bits)
    error = (codes.decode().double() - v.double()).abs().max()
    assert error <= codes.step.double() + 4 * torch.finfo(dtype).eps * v.norm().double()


@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("bucket", [0, 3, 4])
def test_grid_of_a_bucket_is_its_norm_over_levels(bucket, norm):
    v = torch.tensor([3.0, -4.0, 0.0, 1.0, 0.5, 0.25, 8.0, 0.0, -6.0, 2.0])
    codes = stochastic_round(v, 5, Key((1,)), norm, bucket)
    parts = v.split(bucket or len(v))
    sizes = [float(part.abs().max() if norm == "max" else part.norm()) for part in parts]
    np.testing.assert_allclose(codes.step.numpy(), np.array(sizes) / 5, rtol=1e-6)
    np.testing.assert_allclose(codes.low.numpy(), -np.array(sizes), rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bits", [2, 6, 8, 24, 26, 32])
@pytest.mark.parametrize("bucket", [0, 3])
def test_stochastic_round_keeps_zeros(bucket, bits, dtype):
    v = normal(50, dtype=dtype) / 3
    v[::4] = 0
    v[3:6] = 0  # a bucket of zeros
    decoded = stochastic_round(v, levels_for_bits(bits), Key((1,)), "l2", bucket).decode()
    assert (decoded[v == 0] == 0).all()


def test_stochastic_round_keeps_signs():
    v = normal(1000)
    assert (stochastic_round(v, 3, Key((1,))).decode() * v >= 0).all()


def test_stochastic_round_depends_only_on_its_key():
    v = normal(1000)
    first, again = stochastic_round(v, 3, Key((1, 2))), stochastic_round(v, 3, Key((1, 2)))
    other = stochastic_round(v, 3, Key((1, 3)))
    assert torch.equal(first.codes, again.codes)
    assert not torch.equal(first.codes, other.codes)


def test_bucket_longer_than_the_vector_covers_the_vector():
    v = normal(20)
    whole, longer = stochastic_round(v, 3, Key((1,))), stochastic_round(v, 3, Key((1,)), bucket=64)
    assert longer.bucket == whole.bucket == 20
    assert torch.equal(whole.decode(), longer.decode())


@pytest.mark.parametrize("bucket", [0, 3])
def test_stochastic_round_of_the_zero_vector_is_none(bucket):
    assert stochastic_round(torch.zeros(10), 3, Key((1,)), bucket=bucket) is None


def test_levels_and_widths():
    assert levels_for_bits(6) == 31
    assert [bits_for_levels(n) for n in (1, 2, 3, 4, 7, 8, 31, 32)] == [2, 3, 3, 4, 4, 5, 6, 7]
    for bits in range(2, 33):
        levels = levels_for_bits(bits)
        assert bits_for_levels(levels) == bits
        assert 2 ** (bits - 1) < 2 * levels + 1 <= 2**bits


def threshold_of(v, density):
    """Return the k-th largest magnitude with k = max(1, density * d)."""
    return float(np.sort(np.abs(v))[-max(1, round(density * len(v)))])


@STABLE
@given(vectors(1e3, 32), DENSITIES)
def test_sparse_sends_the_largest_coordinates(numbers, density):
    v = np.array(numbers)
    threshold = threshold_of(v, density)
    assume(threshold > 1e-4 * np.abs(v).max() > 0)
    decoded = sparse(torch.from_numpy(v), density).decode().numpy()
    assert ((decoded != 0) == (np.abs(v) >= threshold)).all()
    assert (decoded * v >= 0).all()
    # psi = floor(|v| / step + 0.4), so the error is from -0.6 to 0.4 steps
    overshoot = (np.abs(decoded) - np.abs(v))[decoded != 0] * 0.6 / threshold
    assert (overshoot <= 0.4 + 1e-6).all()
    assert (overshoot >= -0.6 - 1e-6).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@STABLE
@given(numbers=vectors(2.0**60, 32), density=DENSITIES)
def test_sparse_contracts_every_vector(dtype, numbers, density):
    v = torch.tensor(numbers, dtype=dtype)
    assume(float(v.abs().max()) > 1e-15)
    left = (v - sparse(v, density).decode()).double().square().sum()
    sent = max(1, round(density * len(v))) / len(v)
    assert left <= (1 - 5 / 9 * sent) * v.double().square().sum() * (1 + 1e-4)


def test_contraction_bound_of_sparse_is_tight():
    v = torch.ones(100, dtype=torch.float64)
    v[50:] -= 1e-12
    left = (v - sparse(v, 0.5).decode()).square().sum() / v.square().sum()
    assert float(left) == pytest.approx(1 - 5 / 9 * 0.5, rel=1e-9)


def test_sparse_by_hand():
    v = torch.tensor([6.0, -2.9, 3.0, -30.0, 0.0, 1.0], dtype=torch.float64)
    codes = sparse(v, 0.5)  # k = 3: the third largest is 3, so the step is 5
    np.testing.assert_allclose(codes.decode().numpy(), [5, 0, 5, -30, 0, 0], rtol=1e-12)
    assert codes.bits == 4  # -6 to 6
    assert codes.codes.tolist() == [7, 6, 7, 0, 6, 6]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sparse_sends_the_given_density(dtype):
    v = normal(100_000, dtype=dtype)
    for density in (1e-5, 0.001, 0.01, 0.3):
        assert int((sparse(v, density).decode() != 0).sum()) == round(density * len(v))


def test_equal_magnitudes_are_sent_together():
    assert (sparse(torch.tensor([2.0, -2.0, 2.0, 1.0]), 0.25).decode() != 0).tolist() == [
        True, True, True, False,
    ]  # fmt: skip


def test_one_huge_coordinate_widens_sparse_codes_to_at_most_16_bits():
    v = torch.full((1000,), 1e-9)
    v[7] = 1e9
    codes = sparse(v, 0.5)
    assert codes.bits == 16
    assert codes.decode()[7] == pytest.approx(1e9, rel=1e-4)


@pytest.mark.parametrize("zero", [[0.0], [0.0, -0.0], []])
def test_zero_vector_has_no_sparse_codes(zero):
    assert sparse(torch.tensor(zero), 0.1) is None


def dither_for(v, seed=0):
    return Key((seed,)).uniform(v)


def rms(v):
    return float(v.double().square().mean().sqrt())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@STABLE
@given(numbers=vectors(2.0**60, 32), density=DENSITIES, seed=st.integers(0, 9))
def test_stochastic_sparse_rounds_to_one_of_the_two_nearest_points(dtype, numbers, density, seed):
    v = torch.tensor(numbers, dtype=dtype)
    assume(float(v.abs().max()) > 1e-15)
    step = rms(v) / density
    codes = stochastic_sparse(v, density, dither_for(v, seed))
    assert codes is None or float(codes.step) == pytest.approx(step, rel=1e-6)
    decoded = torch.zeros_like(v) if codes is None else codes.decode()
    assert (decoded * v >= 0).all()
    assert ((decoded - v).abs().double() <= step * (1 + 1e-5)).all()


@STABLE
@given(vectors(1e3, 32), DENSITIES)
def test_stochastic_sparse_is_unbiased_and_its_variance_is_bounded(numbers, density):
    """Average over 200 equidistant dithers, which represent the uniform distribution."""
    v = torch.tensor(numbers, dtype=torch.float64)
    assume(float(v.abs().max()) > 1e-3)
    dither = (torch.arange(200, dtype=torch.float64) + 0.5) / 200
    all_at_once = v.repeat(200)
    codes = stochastic_sparse(all_at_once, density, dither.repeat_interleave(len(v)))
    decoded = torch.zeros_like(all_at_once) if codes is None else codes.decode()
    uploads = decoded.reshape(200, len(v))
    step = rms(v) / density
    assert float((uploads.mean(0) - v).abs().max()) <= 5.1e-3 * step
    variance = float(((uploads - v) ** 2).mean(0).sum())
    bound = step * float(v.abs().sum())
    assert bound <= float(v @ v) / density * (1 + 1e-12)
    assert variance <= bound + 5.1e-3 * step**2 * len(v)
    assert float((uploads != 0).double().mean(0).sum()) <= density * len(v) * 1.01 + 5e-3 * len(v)


def test_stochastic_sparse_by_hand():
    v = torch.tensor([1.0, -1.0, 5.0, 3.0], dtype=torch.float64)  # the step is 3 / 0.75 = 4
    codes = stochastic_sparse(v, 0.75, torch.tensor([0.7, 0.8, 0.8, 0.2], dtype=torch.float64))
    np.testing.assert_allclose(codes.decode().numpy(), [0, -4, 8, 0])
    assert codes.bits == 3
    assert codes.codes.tolist() == [3, 2, 5, 3]


@pytest.mark.parametrize("huge", [1e37, float("inf"), float("nan")])
def test_stochastic_sparse_is_none_if_the_step_overflows(huge):
    assert stochastic_sparse(torch.full((9,), huge), 0.004, torch.full((9,), 0.99)) is None


def test_stochastic_sparse_does_not_depend_on_the_number_of_threads():
    v, threads = normal(300_001, dtype=torch.float64), torch.get_num_threads()
    steps = set()
    try:
        for count in (1, 2, 3, 7):
            torch.set_num_threads(count)
            steps.add(float(stochastic_sparse(v, 0.01, dither_for(v)).step))
    finally:
        torch.set_num_threads(threads)
    assert len(steps) == 1


def test_stochastic_sparse_is_none_if_no_coordinate_is_sent():
    assert stochastic_sparse(torch.tensor([1.0, -2.0]), 0.1, torch.zeros(2)) is None
    for zero in ([0.0], [0.0, -0.0], []):
        assert stochastic_sparse(torch.tensor(zero), 0.1, torch.full((len(zero),), 0.99)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stochastic_sparse_sends_its_density_of_equal_magnitudes_and_less_of_others(dtype):
    """Of normal coordinates it sends √(2/π) = 0.8 times the density."""
    v = normal(100_000, dtype=dtype)
    for density in (0.001, 0.01, 0.3):
        for vector, factor in ((v.sign(), 1.0), (v, 0.8)):
            sent = int((stochastic_sparse(vector, density, dither_for(v)).decode() != 0).sum())
            deviation = (density * factor * len(v)) ** 0.5
            assert sent == pytest.approx(density * factor * len(v), abs=4 * deviation)


def test_stochastic_sparse_of_one_dominant_coordinate_sends_many_steps():
    """It sends density √d = 50 steps, to within one."""
    v = torch.full((10_000,), 1e-9)
    v[7] = 1e9
    codes = stochastic_sparse(v, 0.5, dither_for(v))
    assert float(codes.step) == pytest.approx(1e9 / 50)
    assert codes.decode()[7] == pytest.approx(1e9, rel=1 / 50)
    assert int((codes.decode() != 0).sum()) == 1
