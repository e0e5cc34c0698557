"""Fixed-width packing against a reference that sets one bit at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aquila.core.fixed import pack_fixed, packed_size, unpack_fixed

WIDTHS = range(1, 33)


def bit_by_bit(codes, bits):
    packed = bytearray((len(codes) * bits + 7) // 8)
    for i, code in enumerate(codes):
        for j in range(bits):
            place = i * bits + j
            packed[place // 8] |= (code >> j & 1) << place % 8
    return bytes(packed)


def sample(count, bits):
    codes = np.random.default_rng((count, bits)).integers(0, 2**bits, count, dtype=np.int64)
    codes[-1] = 2**bits - 1  # the last one is where padding would show
    return codes


def packed_bytes(codes, bits):
    return pack_fixed(torch.as_tensor(codes), bits).numpy().tobytes()


def unpacked(packed, count, bits):
    return unpack_fixed(torch.tensor(list(packed), dtype=torch.uint8), count, bits, torch.int64)


@pytest.mark.parametrize("bits", WIDTHS)
def test_every_width_and_count_packs_like_the_reference(bits):
    for count in [*range(1, 18), 101, 256]:
        codes = sample(count, bits)
        packed = packed_bytes(codes, bits)
        assert packed == bit_by_bit(codes.tolist(), bits), count
        assert len(packed) == packed_size(count, bits)
        assert unpacked(packed, count, bits).tolist() == codes.tolist(), count


@pytest.mark.parametrize("bits", WIDTHS)
def test_neighbours_do_not_leak_into_each_other(bits):
    top = 2**bits - 1
    for codes in ([top, 0] * 9, [0, top] * 9, [top] * 17, [0] * 17):
        packed = packed_bytes(codes, bits)
        assert packed == bit_by_bit(codes, bits)
        assert unpacked(packed, len(codes), bits).tolist() == codes


def test_the_least_significant_bit_comes_first():
    # 6 bits each: 1 -> 100000, 2 -> 010000, reading each byte from its low end
    assert packed_bytes([1, 2], 6) == bytes([0b10_000001, 0b0000_0000])
    assert packed_bytes([0b101], 3) == bytes([0b101])


@pytest.mark.parametrize(("count", "bits", "size"), [(1, 1, 1), (8, 1, 1), (9, 1, 2), (3, 32, 12)])
def test_packed_size(count, bits, size):
    assert packed_size(count, bits) == size


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_codes_come_back_in_the_type_asked_for(dtype):
    codes = unpack_fixed(pack_fixed(torch.tensor([1, 0, 1, 1]), 1), 4, 1, dtype)
    assert codes.dtype == dtype
    assert codes.tolist() == [1, 0, 1, 1]


@settings(deadline=None, derandomize=True)
@given(st.data(), st.integers(1, 32))
def test_any_codes_survive(data, bits):
    codes = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=40))
    packed = packed_bytes(codes, bits)
    assert packed == bit_by_bit(codes, bits)
    assert unpacked(packed, len(codes), bits).tolist() == codes
