"""Random rotations against explicit matrices."""

import numpy as np
import pytest
import torch

from aquila.core import rotation
from aquila.core.chunks import chunks_of
from aquila.core.random import Key
from aquila.core.rotation import (
    chunk_squares,
    hadamard,
    rotate,
    rotate_chunks,
    unrotate_,
    unrotate_chunks_,
)
from aquila.native import hadamard as native


def normal(dimension, dtype=torch.float64):
    generator = torch.Generator().manual_seed(dimension)
    return torch.randn(dimension, generator=generator, dtype=dtype)


@pytest.mark.parametrize("doublings", range(6))
def test_hadamard_is_sylvesters_matrix(doublings):
    matrix = np.ones((1, 1))
    for _ in range(doublings):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    v = normal(2**doublings)
    expected = matrix @ v.numpy() / np.sqrt(len(v))
    np.testing.assert_allclose(hadamard(v).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [1, 2, 8, 64, 4096, 8192, 2**14, 2**15, 2**17])
def test_native_transform_has_the_bits_of_sums_and_differences(length, dtype):
    v, expected = normal(length, dtype), normal(length, dtype)
    for half in (2**k for k in range(length.bit_length() - 1)):
        low, high = expected.view(-1, 2, half).unbind(1)
        expected = torch.stack((low + high, low - high), 1).view(-1)
    assert hadamard(v).equal(expected * (1 / np.sqrt(length)))
    assert v.equal(normal(length, dtype))


@pytest.mark.parametrize(
    ("array", "length", "message"),
    [
        (np.zeros(3), 3, "a power of two"),
        (np.zeros(6), 4, "a power of two"),
        (np.zeros(4), 0, "a power of two"),
        (np.zeros(4), -4, "a power of two"),
        (np.zeros(4, np.int32), 4, "float32 or float64"),
    ],
)
def test_native_transform_refuses_other_arrays(array, length, message):
    with pytest.raises(ValueError, match=message):
        native.transform(array, length)


CHUNKS = chunks_of((torch.Size([10, 20]), torch.Size([0]), torch.Size([64]), torch.Size([7])), 7)


def test_chunks_are_rotated_one_by_one():
    v = normal(271)
    expected = CHUNKS.pad(v)
    for stage in (0, 1):
        drawn = np.frombuffer(Key((4, stage)).numpy().bytes(-(-len(expected) // 8)), np.uint8)
        flipped = expected * torch.from_numpy(1.0 - 2 * np.unpackbits(drawn)[: len(expected)])
        rows = [row for run in CHUNKS.runs for row in run.rows(flipped)]
        expected = torch.cat([hadamard(row) for row in rows])
    assert rotate_chunks(v, CHUNKS, Key((4,))).equal(expected)


def test_rotated_chunks_of_few_coordinates_look_normal():
    """After one transform all coordinates of a chunk with one nonzero one are equal in size."""
    chunks = chunks_of((torch.Size([4096]),), 12)
    v = torch.zeros(4096, dtype=torch.float64)
    v[5] = 64.0
    rotated = rotate_chunks(v, chunks, Key((4,)))
    assert float(rotated.abs().mean()) == pytest.approx((2 / np.pi) ** 0.5, rel=0.05)
    assert float(rotated.abs().max()) > 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_squares_of_chunks_have_the_same_bits_everywhere(dtype, monkeypatch):
    padded = CHUNKS.pad(normal(271, dtype))
    squares = chunk_squares(padded, CHUNKS)
    rows = [row for run in CHUNKS.runs for row in run.rows(padded)]
    torch.testing.assert_close(squares, torch.stack([row.square().sum() for row in rows]))
    monkeypatch.setattr(rotation, "_has_native_passes", lambda _: False)
    assert torch.equal(chunk_squares(padded, CHUNKS), squares)


@pytest.mark.parametrize(
    ("v", "sums"),
    [
        (np.zeros(8), np.zeros(3)),
        (np.zeros(6), np.zeros(2)),
        (np.zeros(8), np.zeros(2, np.float32)),
        (np.zeros(8), np.zeros(0)),
        (np.zeros(8, np.int64), np.zeros(2)),
    ],
)
def test_native_squares_refuse_other_arrays(v, sums):
    with pytest.raises(ValueError, match="a sum per part"):
        native.squares(v, sums)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rotated_chunks_can_be_inverted_with_the_same_bits_everywhere(dtype, monkeypatch):
    v = normal(271, dtype)
    rotated = rotate_chunks(v, CHUNKS, Key((4,)))
    back = unrotate_chunks_(rotated.clone(), CHUNKS, Key((4,)))
    torch.testing.assert_close(back, v)
    monkeypatch.setattr(rotation, "_has_native_passes", lambda _: False)
    assert rotate_chunks(v, CHUNKS, Key((4,))).numpy().tobytes() == rotated.numpy().tobytes()
    assert unrotate_chunks_(rotated, CHUNKS, Key((4,))).numpy().tobytes() == back.numpy().tobytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dimension", [1, 2, 3, 7, 8, 100, 1000, 1025])
def test_rotation_preserves_the_norm_and_can_be_inverted(dimension, dtype):
    v = normal(dimension, dtype)
    rotated = rotate(v, Key((5,)))
    assert rotated.dtype == dtype
    torch.testing.assert_close(rotated.norm(), v.norm())
    torch.testing.assert_close(unrotate_(rotated, Key((5,))), v)


def test_rotation_depends_only_on_its_key():
    v = normal(100)
    before = v.clone()
    assert torch.equal(rotate(v, Key((1,))), rotate(v, Key((1,))))
    assert not torch.equal(rotate(v, Key((1,))), rotate(v, Key((2,))))
    assert torch.equal(v, before)


@pytest.mark.parametrize("dimension", [1024, 1500])
def test_rotation_spreads_one_coordinate_over_all(dimension):
    for place in (0, dimension - 1):
        v = torch.zeros(dimension, dtype=torch.float64)
        v[place] = 1
        assert rotate(v, Key((3,))).abs().max() < 0.2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dimension", [1, 3, 8, 100, 1025, 5000])
def test_rotation_has_the_same_bits_without_native_passes(dimension, dtype, monkeypatch):
    v = normal(dimension, dtype)
    v[::7] = 0
    rotated = rotate(v, Key((5,)))
    back = unrotate_(rotated.clone(), Key((5,)))
    monkeypatch.setattr(rotation, "_has_native_passes", lambda _: False)
    assert rotate(v, Key((5,))).numpy().tobytes() == rotated.numpy().tobytes()
    assert unrotate_(rotated.clone(), Key((5,))).numpy().tobytes() == back.numpy().tobytes()


def test_native_passes_refuse_other_arrays():
    v = np.zeros(9)
    for array, bits in ((np.zeros(9, np.int64), np.zeros(2, np.uint8)), (v, np.zeros(1, np.uint8))):
        with pytest.raises(ValueError, match="a bit per float"):
            native.flip_signs(array, bits)
    for other, side in ((np.zeros(8), 2), (v.astype(np.float32), 2), (v, 4), (v, -1), (v, 2**31)):
        with pytest.raises(ValueError, match="contain the square"):
            native.by_columns(v, other, side)
