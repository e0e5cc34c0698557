"""The coarsest grid within an error: the bound always holds, and the codes are small."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from aquila.core.packet import Packet
from aquila.core.quantize_within import quantize_within
from aquila.core.random import Key
from aquila.core.vector import error_ratio
from aquila.core.wire import pack, unpack

ERRORS = (0.001, 0.1, 0.5, 0.9, 0.99)


def gaussian(count=100_000):
    return torch.randn(count, generator=Key((4,)).torch())


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(deadline=None)
@given(v=arrays.arrays("f4", st.integers(1, 60), elements=st.floats(-1e10, 1e10, width=32)))
def test_error_is_within_the_bound(dtype, error, v):
    vector = torch.from_numpy(v).to(dtype)
    codes = quantize_within(vector, error)
    assert error_ratio(vector, codes.decode()) <= error * (1 + 1e-5) or vector.abs().max() < 1e-30
    again = unpack(pack(Packet(0, codes))).vector
    assert torch.equal(again.decode(), codes.decode())


@pytest.mark.parametrize(("error", "bits"), [(0.3, 2.1), (0.5, 1.35), (0.7, 0.8), (0.9, 0.3)])
def test_normal_vector_takes_few_bits(error, bits):
    v = gaussian()
    frame = pack(Packet(0, quantize_within(v, error)))
    assert 8 * len(frame) / len(v) < bits
    assert error_ratio(v, quantize_within(v, error).decode()) > 0.93 * error


def test_few_large_coordinates_take_very_few_bits():
    v = 1e-3 * gaussian()
    v[::1000] += 1
    assert 8 * len(pack(Packet(0, quantize_within(v, 0.5)))) / len(v) < 0.03


def test_zero_vector_has_zero_codes():
    for v in (torch.zeros(5), torch.full((5,), 1e-45)):
        codes = quantize_within(v, 0.5)
        assert codes.dimension == 5
        assert torch.isfinite(codes.decode()).all()
    assert not quantize_within(torch.zeros(5), 0.5).decode().any()
