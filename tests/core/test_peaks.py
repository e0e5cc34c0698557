"""The peak quantizer against its formulas, and its frames."""

import math

import numpy as np
import pytest
import torch

from aquila.core import rotation
from aquila.core.packet import Packet
from aquila.core.peak_reader import PeakReader
from aquila.core.peaks import (
    EXPONENTS,
    MAX_BLOCK,
    choose_rates,
    chunk_bits_of,
    expected_error,
    expected_peak,
)
from aquila.core.rotation import rotate_chunks
from aquila.core.wire import pack
from helpers.peak_decoder import decode
from helpers.peaks import ROUND, normal, quantized, quantized_with_error, sent, tensors


def relative_error(v, u):
    return float((u - v).double().square().sum() / v.double().square().sum())


def test_upload_is_the_formula():
    """Each chunk is its largest rotated coordinates, with an amplitude that keeps v's length."""
    sizes = torch.tensor([1.0, 3.0, 0.2, 1.0]).repeat_interleave(64)
    v = normal(64 * 4, dtype=torch.float64) * sizes
    upload = quantized(v, block=8)
    assert upload.basis.chunk_bits == 6
    rotated = rotate_chunks(v, upload.chunks, upload.basis.key).view(4, 64).numpy()
    decoded = rotate_chunks(upload.decode(), upload.chunks, upload.basis.key)
    for chunk, z, y in zip(range(4), rotated, decoded.view(4, 64).numpy(), strict=True):
        block, code = 2 ** upload.block_bits[chunk], np.zeros(64)
        for start in range(0, 64, block):
            peak = start + np.abs(z[start : start + block]).argmax()
            code[peak] = np.sign(z[peak])
        sent_amplitude = float(upload.scale) * 2 ** (-upload.exponents[chunk] / 2)
        np.testing.assert_allclose(y, sent_amplitude * code, rtol=1e-9, atol=1e-9)
        exact = (z @ z) / (z @ code)
        assert exact / math.sqrt(2) < sent_amplitude * (1 + 1e-9) < exact * math.sqrt(2) * 1.001


@pytest.mark.parametrize(("block", "squared"), [(1, 2 / math.pi), (2, 4 / math.pi)])
def test_expected_peaks_of_short_blocks(block, squared):
    assert expected_peak(block) ** 2 == pytest.approx(squared, rel=1e-5)


@pytest.mark.parametrize("block", [3, 40, 300])
def test_expected_peak_is_that_of_samples(block):
    samples = normal(block * 20_000).view(-1, block)
    assert float(samples.abs().amax(1).mean()) == pytest.approx(expected_peak(block), rel=5e-3)


@pytest.mark.parametrize(("power", "largest"), [(1, 1.1), (5, 1.3)])
@pytest.mark.parametrize("block", [1, 16, 100])
def test_error_hardly_depends_on_the_vector(power, largest, block):
    """With fifth powers, few coordinates of a chunk have most of its energy."""
    v = normal(40_000) ** power
    errors = [relative_error(v, quantized(v, block=block, seed=k).decode()) for k in range(4)]
    assert sum(errors) / 4 < largest * expected_error(block)


@pytest.mark.parametrize("block", [4, 64, 512])
def test_error_of_equal_chunks_is_the_expected_one(block):
    v = normal(8 * 4096)
    uploads = [quantized(v, block=block, seed=k) for k in range(30)]
    errors = [relative_error(v, upload.decode()) for upload in uploads]
    assert sum(errors) / 30 == pytest.approx(1.02 * expected_error(block), rel=0.1)


def test_the_error_and_the_norm_are_known_without_decoding():
    v = normal(4 * 512) * torch.tensor([1.0, 0.1, 5.0, 1e-3]).repeat_interleave(512)
    upload, error = quantized_with_error(v, block=64)
    u = upload.decode()
    assert error**2 == pytest.approx(relative_error(v, u), rel=1e-4)
    assert upload.squared_norm() == pytest.approx(float(u.double().square().sum()), rel=1e-4)


def test_uploads_are_unbiased():
    """Every tensor is sent with its own length on average, whatever its size and its share."""
    lengths, shapes = [3000, 50, 950], tensors(3000, 50, 950)
    sizes = torch.tensor([1.0, 5.0, 0.1], dtype=torch.float64)
    v = normal(4000, dtype=torch.float64) * sizes.repeat_interleave(torch.tensor(lengths))
    uploads = [quantized(v, shapes, 16, seed).decode() for seed in range(1000)]
    for part, *sent_parts in zip(
        v.split(lengths), *(u.split(lengths) for u in uploads), strict=True
    ):
        shares = torch.stack([part @ sent for sent in sent_parts]) / (part @ part)
        assert float(shares.mean()) == pytest.approx(
            1, abs=4 * float(shares.std()) / math.sqrt(1000)
        )


def test_few_coordinates_of_a_chunk_are_hardly_biased():
    """10 of 64 coordinates: after one transform the squared bias would be about a tenth."""
    v = normal(10, dtype=torch.float64)
    mean = sum(quantized(v, block=4, seed=seed).decode() for seed in range(2000)) / 2000
    assert relative_error(v, mean) < 0.02


def test_the_share_of_a_chunk_grows_with_its_size():
    squares, sizes = 4096 * 4.0 ** np.array([0, -2, -4]), np.full(3, 12)
    budget = 3 * 4096 / 256 * 9
    bits = choose_rates(squares, sizes, budget)
    assert bits.tolist() == [bits[0], bits[0] + 3, bits[0] + 6]
    cost = ((1 << (sizes - bits)) * (bits + 1)).sum()
    other = ((1 << (sizes - bits - 1)) * (bits + 2)).sum()
    assert abs(cost - budget) < abs(other - budget)


def test_rates_stay_within_their_chunks():
    squares, sizes = np.array([1e30, 1.0, 0.0, 1e-30]), np.array([6, 6, 6, 3])
    assert choose_rates(squares, sizes, 10_000.0).tolist() == [0, 0, 7, 0]
    assert choose_rates(squares, sizes, 0.0).tolist() == [6, 6, 7, 3]
    assert choose_rates(squares, sizes, 75.0).tolist() == [0, 6, 7, 3]


@pytest.mark.parametrize(
    ("block", "bits"), [(1, 6), (8, 6), (9, 7), (320, 12), (512, 12), (513, 13), (MAX_BLOCK, 18)]
)
def test_chunks_have_at_least_eight_blocks(block, bits):
    assert chunk_bits_of(block) == bits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("block", [1, 2, 16, 39, 128, 129, 300, 5000, MAX_BLOCK])
def test_frames_keep_every_bit(block, dtype):
    shapes = tensors(1000, 3, 0, 9001)
    upload = quantized(normal(10_004, dtype=dtype), shapes, block)
    read = PeakReader().read(sent(upload), shapes)
    assert read.decode().equal(upload.decode())
    assert read.dimension == 10_004
    assert read.decode().dtype == dtype
    assert upload.to_codes().dimension in PeakReader().dimensions(shapes)


@pytest.mark.parametrize("block", [40, 128, 300])
def test_a_block_costs_its_bits(block):
    dimension = 2_000_000
    frame = pack(Packet(ROUND, quantized(normal(dimension), block=block).to_codes()))
    peaks = dimension / block * (1 + math.log2(block)) / 8
    assert 0.97 * peaks < len(frame) < 1.06 * peaks + 60


def test_nothing_is_sent_of_a_zero_vector_or_an_empty_one():
    assert quantized_with_error(torch.zeros(50)) is None
    assert quantized_with_error(torch.zeros(0), tensors(0)) is None


@pytest.mark.parametrize("number", [math.nan, math.inf, 1e200])
def test_a_vector_that_is_not_finite_is_refused(number):
    v = normal(100, dtype=torch.float64)
    v[7] = number
    with pytest.raises(ValueError, match="is not finite, or its norm is too large"):
        quantized_with_error(v)


def test_a_zero_tensor_takes_no_peaks():
    v, shapes = torch.cat((normal(500), torch.zeros(500))), tensors(500, 500)
    upload = quantized(v, shapes, 4)
    assert (upload.block_bits > upload.chunks.sizes).sum() == 8
    assert not upload.decode()[500:].any()


@pytest.mark.parametrize("dimension", [1, 2, 5, 64, 700])
@pytest.mark.parametrize("block", [1, 3, 16, 300])
def test_a_second_decoder_reads_the_same_vector(dimension, block):
    sizes = [dimension // 2, 0, dimension - dimension // 2]
    v = normal(dimension, dtype=torch.float64)
    v[: dimension // 2] *= 100
    upload = quantized(v, tensors(*sizes), block, seed=dimension)
    codes = upload.to_codes()
    decoded = decode(codes.codes.numpy().tobytes(), float(codes.step), sizes, ROUND)
    np.testing.assert_allclose(upload.decode(), decoded, rtol=1e-12, atol=1e-12)


def test_a_second_decoder_reads_chunks_without_peaks():
    v = torch.cat((normal(70, dtype=torch.float64), torch.zeros(200, dtype=torch.float64)))
    codes = quantized(v, tensors(100, 170), 4).to_codes()
    decoded = decode(codes.codes.numpy().tobytes(), float(codes.step), [100, 170], ROUND)
    np.testing.assert_allclose(quantized(v, tensors(100, 170), 4).decode(), decoded, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_upload_has_the_same_bits_without_native_passes(dtype, monkeypatch):
    v, shapes = normal(5000, dtype=dtype), tensors(4000, 10, 990)
    upload = quantized(v, shapes, 40)
    decoded = upload.decode().numpy().tobytes()
    monkeypatch.setattr(rotation, "_has_native_passes", lambda _: False)
    other = quantized(v, shapes, 40)
    assert other.to_codes().codes.equal(upload.to_codes().codes)
    assert other.scale.equal(upload.scale)
    assert other.decode().numpy().tobytes() == decoded


def test_bytes_of_a_known_upload():
    """The format and the rotation stay as they are: devices of another version must be read."""
    v = torch.arange(-200.0, 200.0, dtype=torch.float64).square()
    codes = quantized(v, tensors(300, 100), 8, seed=5).to_codes()
    assert codes.codes.numpy().tobytes().hex() == (
        "ab2669c7c0c616ea7387854c62648a59fce555d9204cd8b12121dbc9825cc4858ff184"
    )
    assert float(codes.step) == pytest.approx(87184.16009356118, rel=1e-12)


def test_extreme_vectors_have_finite_uploads():
    tiny = torch.zeros(64)
    tiny[0] = 1.4e-45
    found = quantized_with_error(tiny)
    assert found is None or torch.isfinite(found[0].decode()).all()
    huge = normal(4096) * 1e33
    upload = quantized(huge, block=32)
    assert relative_error(huge / 1e33, upload.decode() / 1e33) < 2 * expected_error(32)


def test_chunks_of_very_different_sizes_are_finite():
    v = normal(256) * torch.tensor([1e30, 1.0, 1e-30, 0.0]).repeat_interleave(64)
    upload = quantized(v, block=4)
    assert upload.exponents.max() < EXPONENTS
    assert torch.isfinite(upload.decode()).all()
