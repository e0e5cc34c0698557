"""The few numbers every rule needs of a vector."""

import math

import pytest
import torch

from aquila.core.vector import error_ratio, max_norm, squared_norm


def test_squared_norm_by_hand():
    assert squared_norm(torch.tensor([3.0, -4.0])) == pytest.approx(25.0, rel=1e-15)
    assert squared_norm(torch.zeros(5)) == 0
    assert squared_norm(torch.zeros(0)) == 0


def test_squared_norm_of_a_long_float32_vector_keeps_its_digits():
    v = torch.full((2**20,), 0.1)
    exact = 2**20 * float(v[0]) ** 2
    assert squared_norm(v) == pytest.approx(exact, rel=1e-10)


def test_squared_norm_does_not_overflow_float32():
    assert squared_norm(torch.tensor([1e30, 1e30])) == pytest.approx(2e60, rel=1e-6)


@pytest.mark.parametrize(
    ("values", "norm"), [([1.0, -3.0, 2.0], 3.0), ([-0.0], 0.0), ([], 0.0), ([-0.5], 0.5)]
)
def test_max_norm_is_the_largest_absolute_coordinate(values, norm):
    assert max_norm(torch.tensor(values)) == norm


def test_error_ratio_compares_error_and_vector():
    v = torch.tensor([3.0, 4.0])
    assert error_ratio(v, v) == 0
    assert error_ratio(v, torch.zeros(2)) == pytest.approx(1.0)
    assert error_ratio(v, torch.tensor([3.0, 3.0])) == pytest.approx(0.2)
    assert error_ratio(v, -v) == pytest.approx(2.0)


def test_error_ratio_of_the_zero_vector_is_0():
    assert error_ratio(torch.zeros(2), torch.zeros(2)) == 0


def test_results_are_plain_floats():
    v = torch.ones(2)
    assert all(type(x) is float for x in (squared_norm(v), max_norm(v), error_ratio(v, v)))
    assert math.isfinite(squared_norm(v))
