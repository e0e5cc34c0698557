"""Frames of few nonzero coordinates are read as such, with the codes of the dense reader."""

import numpy as np
import pytest
import torch

from aquila.core.packet import Codes, Packet, SparseCodes, code_dtype
from aquila.core.quantize import shared_dither, sparse
from aquila.core.random import Key
from aquila.core.wire import WireError, pack, unpack
from aquila.native import accumulate, coder


def top_codes(d=50_000, density=0.01, dtype=torch.float32):
    v = torch.randn(d, generator=Key((3, d)).torch(), dtype=dtype) ** 3
    return sparse(v, density)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_top_k_frame_is_read_as_sparse_codes(dtype):
    codes = top_codes(dtype=dtype)
    frame = pack(Packet(0, codes))
    read = unpack(frame).vector
    assert isinstance(read, SparseCodes)
    assert read.codes.equal(codes.codes)
    assert read.positions.equal((codes.codes != read.centre).nonzero().flatten())
    assert read.decode().equal(codes.decode())
    assert pack(Packet(0, read)) == frame


def test_dithered_frame_is_read_as_sparse_codes_and_packs_to_the_same_bytes():
    v = torch.randn(70_000, generator=Key((4,)).torch())
    codes = shared_dither(v, 0.01, Key((5,)))
    frame = pack(Packet(0, codes))
    read = unpack(frame).vector
    assert isinstance(read, SparseCodes)
    assert read.codes.equal(codes.codes)
    assert pack(Packet(0, read)) == frame


@pytest.mark.parametrize("bits", [2, 8, 9, 15, 16, 31, 32])
def test_codes_of_every_width_are_read_as_sparse_codes(bits):
    centre, d = 2 ** (bits - 1) - 1, 4096
    codes = torch.full((d,), centre, dtype=code_dtype(bits))
    codes[torch.tensor([0, 7, 1000, d - 1])] = torch.tensor([0, centre + 1, 2**bits - 1, 1]).to(
        codes.dtype
    )
    step = torch.tensor([0.5], dtype=torch.float64)
    sent = Codes(codes, bits, -(step * centre), step, d)
    read = unpack(pack(Packet(0, sent))).vector
    assert isinstance(read, SparseCodes)
    assert read.codes.equal(codes)
    assert read.decode().equal(sent.decode())


def test_codes_whose_usual_value_is_not_zero_are_dense():
    codes = top_codes()
    shifted = Codes(codes.codes, codes.bits, codes.low + codes.step / 3, codes.step, 50_000)
    read = unpack(pack(Packet(0, shifted))).vector
    assert isinstance(read, Codes)
    assert read.codes.equal(codes.codes)


def test_a_long_segment_that_lists_no_codes_is_not_read_as_a_sparse_one():
    count, rng = 300_000, np.random.default_rng(8)
    codes = np.clip(7 + np.rint(rng.standard_normal(count)), 0, 15)
    body = coder.encode(codes.astype(np.uint8), 4)
    assert coder.decode_sparse(body, count, 1, 4, 7, count) is None
    assert coder.decode_sparse(body[:-1], count, 1, 4, 7, count) is None  # the dense reader refuses
    with pytest.raises(ValueError, match="coded body"):
        coder.decode(body[:-1], np.empty(count, np.uint8), 4)


def test_codes_with_many_exceptions_are_dense():
    codes = top_codes(density=0.1)
    read = unpack(pack(Packet(0, codes))).vector
    assert isinstance(read, Codes)
    assert read.codes.equal(codes.codes)


def attempt(read, *arguments):
    """Return the result of a call, or the message of its ValueError."""
    try:
        return read(*arguments)
    except ValueError as error:
        return str(error)


def test_damaged_sparse_body_is_refused_like_a_dense_one():
    codes = top_codes()
    centre = int(codes.codes.mode().values)
    body = coder.encode(codes.codes.numpy(), codes.bits)
    out = np.empty(50_000, np.uint8)
    rng, refused = np.random.default_rng(0), 0
    for _ in range(300):
        damaged = bytearray(body)
        damaged[rng.integers(len(body))] ^= 1 << rng.integers(8)
        found = attempt(coder.decode_sparse, damaged, 50_000, 1, codes.bits, centre, 50_000)
        dense = attempt(coder.decode, damaged, out, codes.bits)
        refused += isinstance(dense, str)
        assert isinstance(found, str) == isinstance(dense, str)
        if not isinstance(found, str):
            positions = np.frombuffer(found[0], np.int64)
            assert (out[positions] == np.frombuffer(found[1], np.uint8)).all()
            assert (np.delete(out, positions) == centre).all()
    assert refused > 100
    with pytest.raises(WireError):
        unpack(pack(Packet(0, codes))[:-40])


def test_positions_outside_of_a_sum_are_refused():
    total = np.zeros(4)
    for position in (-1, 4):
        with pytest.raises(ValueError, match="outside"):
            accumulate.add_sparse(total, np.array([0, position]), np.ones(2))
    with pytest.raises(ValueError, match="one position"):
        accumulate.add_sparse(total, np.array([0]), np.ones(2))
    with pytest.raises(ValueError, match="codes of 1, 2 or 4 bytes"):
        accumulate.add_codes(total, np.zeros(3, np.uint8), 0.0, 1.0, False)
    assert not total.any()
