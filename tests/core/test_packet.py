"""Packets and their vectors."""

import dataclasses

import numpy as np
import pytest
import torch

from aquila.core.packet import NEVER, Codes, Dense, Packet, WireError, code_dtype


def codes_of(numbers, bits, low, step, bucket, dtype=torch.float32):
    return Codes(
        torch.tensor(numbers, dtype=code_dtype(bits)),
        bits,
        torch.tensor(low, dtype=dtype),
        torch.tensor(step, dtype=dtype),
        bucket,
    )


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, 32), (torch.float64, 64)])
def test_dense_knows_its_size_and_decodes_to_itself(dtype, bits):
    values = torch.tensor([1.5, -0.0, 3.0], dtype=dtype)
    dense = Dense(values)
    assert (dense.dimension, dense.bits) == (3, bits)
    assert dense.decode() is values


def test_codes_decode_on_one_grid():
    codes = codes_of([0, 1, 3], bits=2, low=[-1.5], step=[0.5], bucket=3)
    assert codes.dimension == 3
    assert codes.decode().tolist() == [-1.5, -1.0, 0.0]


def test_codes_decode_with_one_grid_per_bucket():
    codes = codes_of([0, 1, 2, 3, 1], bits=2, low=[0.0, 10.0, -1.0], step=[1.0, 2.0, 0.5], bucket=2)
    assert codes.decode().tolist() == [0.0, 1.0, 14.0, 16.0, -0.5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bucket", [4, 9])
def test_decoding_rounds_the_product_and_then_the_sum(dtype, bucket):
    rng = np.random.default_rng(3)
    grids = -(-9 // bucket)
    numbers, low, step = rng.integers(0, 2**20, 9), -rng.random(grids), rng.random(grids)
    codes = codes_of(numbers.tolist(), 20, low.tolist(), step.tolist(), bucket, dtype)
    expected = []
    for i, number in enumerate(numbers):
        step_i = codes.step.numpy()[i // bucket]
        product = step_i * step_i.dtype.type(number)
        expected.append(product + codes.low.numpy()[i // bucket])
    assert codes.decode().numpy().tobytes() == np.array(expected).tobytes()


def test_decoding_does_not_change_the_codes():
    codes = codes_of([3, 0], bits=2, low=[1.0], step=[0.25], bucket=2)
    assert torch.equal(codes.decode(), codes.decode())
    assert codes.codes.tolist() == [3, 0]
    assert (codes.low.item(), codes.step.item()) == (1.0, 0.25)


@pytest.mark.parametrize("bits", range(1, 33))
def test_code_dtype_is_the_smallest_type_that_holds_every_code(bits):
    dtype = code_dtype(bits)
    assert torch.iinfo(dtype).max >= 2**bits - 1
    smaller = [t for t in (torch.uint8, torch.int16, torch.int32) if t.itemsize < dtype.itemsize]
    assert all(torch.iinfo(t).max < 2**bits - 1 for t in smaller)


def test_packet_without_arguments_is_a_skip_without_ack():
    packet = Packet(4)
    assert packet.vector is None
    assert packet.ack == NEVER
    assert not packet.refused
    assert dict(packet.scalars) == {}


def test_missing_scalar_raises_an_error_with_its_name():
    packet = Packet(4, scalars={"drift": 0.5})
    assert packet.scalar("drift") == 0.5
    with pytest.raises(WireError, match="round 4 lacks the scalar 'size'"):
        packet.scalar("size")


def test_packet_is_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Packet(1).round = 2
