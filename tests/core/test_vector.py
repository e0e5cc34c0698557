"""Norms of vectors."""

import math

import pytest
import torch

from aquila.core.vector import error_ratio, max_norm, relative_norm, squared_norm


def test_squared_norm_by_hand():
    assert squared_norm(torch.tensor([3.0, -4.0])) == pytest.approx(25.0, rel=1e-15)
    assert squared_norm(torch.zeros(5)) == 0
    assert squared_norm(torch.zeros(0)) == 0


def test_squared_norm_of_a_long_float32_vector_is_precise():
    v = torch.full((2**20,), 0.1)
    exact = 2**20 * float(v[0]) ** 2
    assert squared_norm(v) == pytest.approx(exact, rel=1e-10)


def test_squared_norm_does_not_overflow_float32():
    assert squared_norm(torch.tensor([1e30, 1e30])) == pytest.approx(2e60, rel=1e-6)


def in_order(numbers):
    """Add the squares in the order that `core/vector.py` defines, one number at a time."""
    lanes = [0.0] * 65536
    for i, x in enumerate(numbers):
        lanes[i % 65536] += x * x
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [a + b for a, b in zip(lanes[:half], lanes[half:], strict=True)]
    return lanes[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 1000, 1025, 65535, 65536, 65537, 150_001])
def test_squares_are_added_in_the_defined_order(size, dtype):
    v = torch.randn(size, generator=torch.Generator().manual_seed(size), dtype=dtype)
    assert squared_norm(v) == in_order(v.tolist())
    strided = torch.stack((v, -v), 1)[:, 0]
    assert squared_norm(strided) == squared_norm(v)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0, 1, 3, 65537, 1_000_003])
def test_gpu_adds_the_squares_in_the_defined_order(size, dtype):
    v = torch.randn(size, generator=torch.Generator().manual_seed(size), dtype=dtype)
    assert squared_norm(v.cuda()) == squared_norm(v)
    assert squared_norm(torch.stack((v, -v), 1).cuda()[:, 0]) == squared_norm(v)
    assert max_norm(v.cuda()) == max_norm(v)


def test_nan_propagates_to_both_norms():
    v = torch.tensor([1.0, math.nan, 2.0])
    assert math.isnan(squared_norm(v))
    assert math.isnan(max_norm(v))


def test_norm_of_a_tensor_that_requires_grad():
    assert squared_norm(torch.ones(3, requires_grad=True)) == 3


@pytest.mark.parametrize(
    ("values", "norm"), [([1.0, -3.0, 2.0], 3.0), ([-0.0], 0.0), ([], 0.0), ([-0.5], 0.5)]
)
def test_max_norm_is_the_largest_absolute_coordinate(values, norm):
    assert max_norm(torch.tensor(values)) == norm


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 17, 7_850, 100_003])
@pytest.mark.parametrize("last", [-9.0, math.inf, -math.inf, math.nan])
def test_max_norm_sees_every_coordinate(size, dtype, last):
    v = torch.rand(size, generator=torch.Generator().manual_seed(size), dtype=dtype)
    v[-1] = last
    assert repr(max_norm(v)) == repr(abs(last))


def test_error_ratio_is_relative_to_the_vector():
    v = torch.tensor([3.0, 4.0])
    assert error_ratio(v, v) == 0
    assert error_ratio(v, torch.zeros(2)) == pytest.approx(1.0)
    assert error_ratio(v, torch.tensor([3.0, 3.0])) == pytest.approx(0.2)
    assert error_ratio(v, -v) == pytest.approx(2.0)


def test_error_ratio_of_the_zero_vector_is_0():
    assert error_ratio(torch.zeros(2), torch.zeros(2)) == 0


def test_relative_norm_is_a_ratio():
    assert relative_norm(1.0, 4.0) == 0.5
    assert relative_norm(0.0, 0.0) == 0


def test_results_are_plain_floats():
    v = torch.ones(2)
    assert all(type(x) is float for x in (squared_norm(v), max_norm(v), error_ratio(v, v)))
    assert math.isfinite(squared_norm(v))
