"""The peak quantizer against its formulas, and its frames."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from aquila.core.bit_strings import from_bytes, to_bytes
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.peaks import (
    GROUP_BLOCKS,
    LEVELS,
    MAX_BLOCK,
    NUMBER_BITS,
    PeakReader,
    expected_error,
    expected_peak,
    group_levels,
    groups_of,
    multiply_groups,
    quantize_peaks,
    rotation_key,
)
from aquila.core.random import Key
from aquila.core.rotation import rotate
from aquila.core.wire import pack, unpack
from helpers.peak_decoder import decode

ROUND = 7


def normal(dimension, seed=0, dtype=torch.float32):
    return torch.randn(dimension, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def tensors(*sizes):
    return tuple(torch.Size([size]) for size in sizes)


def quantized(v, shapes=None, block=8, seed=0):
    return quantize_peaks(v, shapes or tensors(v.numel()), block, Key((seed,)), ROUND)


def sent(upload):
    """Return the reply as the server unpacks it."""
    return unpack(pack(Packet(ROUND, upload.to_codes())))


def relative_error(v, u):
    return float((u - v).double().square().sum() / v.double().square().sum())


@pytest.mark.parametrize("dimension", [16, 20, 33])
def test_upload_is_the_formula(dimension):
    v, block = normal(dimension, dtype=torch.float64), 8
    upload = quantized(v, block=block)
    rotation = np.stack([rotate(unit, rotation_key(upload.seed, ROUND)) for unit in torch.eye(
        dimension, dtype=torch.float64)], axis=1)  # fmt: skip
    rotated, code = rotation @ v.numpy(), np.zeros(dimension)
    for start in range(0, dimension, block):
        peak = start + np.abs(rotated[start : start + block]).argmax()
        code[peak] = np.sign(rotated[peak])
    scale = (v.numpy() @ v.numpy()) / (rotated @ code)
    np.testing.assert_allclose(upload.decode(), scale * rotation.T @ code, rtol=1e-12, atol=1e-12)
    # what the upload has in common with v is v itself
    assert float(upload.decode() @ v) == pytest.approx(float(v @ v))


@pytest.mark.parametrize(("block", "squared"), [(1, 2 / math.pi), (2, 4 / math.pi)])
def test_expected_peaks_of_short_blocks(block, squared):
    assert expected_peak(block) ** 2 == pytest.approx(squared, rel=1e-5)


@pytest.mark.parametrize("block", [3, 40, 300])
def test_expected_peak_is_that_of_samples(block):
    samples = normal(block * 20_000).view(-1, block)
    assert float(samples.abs().amax(1).mean()) == pytest.approx(expected_peak(block), rel=5e-3)


@pytest.mark.parametrize("v", [normal(40_000), normal(40_000) ** 5], ids=["normal", "uneven"])
@pytest.mark.parametrize("block", [1, 16, 100])
def test_error_does_not_depend_on_the_vector(v, block):
    """Groups of such vectors have equal sizes or make the error smaller."""
    errors = [relative_error(v, quantized(v, block=block, seed=k).decode()) for k in range(4)]
    assert sum(errors) / 4 < 1.05 * expected_error(block)


def test_error_of_one_group_is_the_expected_one():
    v = normal(2000)
    errors = [relative_error(v, quantized(v, block=300, seed=k).decode()) for k in range(60)]
    assert sum(errors) / 60 == pytest.approx(expected_error(300), rel=0.1)


def test_uploads_are_unbiased():
    """Every tensor is sent with its own length on average, whatever its size and its weight."""
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


def test_error_of_tensors_of_different_sizes_is_the_formula():
    lengths, shapes = [8000, 8000], tensors(8000, 8000)
    v = normal(16_000) * torch.tensor([1.0, 2.0**-8]).repeat_interleave(torch.tensor(lengths))
    errors = [relative_error(v, quantized(v, shapes, 1000, seed).decode()) for seed in range(30)]
    weights = torch.tensor([1.0, 2.0**-2]).repeat_interleave(torch.tensor(lengths))
    formula = weights.square().mean() * (v / weights).square().sum() / v.square().sum()
    assert sum(errors) / 30 == pytest.approx(float(formula) * expected_error(1000), rel=0.1)


def test_groups_cover_every_tensor():
    shapes = (torch.Size([100, 7]), torch.Size([0]), torch.Size([]), torch.Size([8 * GROUP_BLOCKS]))
    groups = groups_of(shapes, 4)
    assert [one.count for one in groups] == [700 // (4 * GROUP_BLOCKS), 1, 2]
    assert min(one.size for one in groups if one.count > 1) >= 4 * GROUP_BLOCKS
    levels = group_levels(normal(701 + 8 * GROUP_BLOCKS), shapes, 4)
    assert len(levels) == sum(one.count for one in groups)


def test_the_last_group_has_the_rest_of_its_tensor():
    v = torch.cat((torch.ones(100), torch.full((3,), 100.0), torch.ones(7)))
    shapes, block = tensors(103, 7), 6  # two groups of 51 and 52, and one of 7
    levels = group_levels(v, shapes, block)
    rms = torch.tensor([1.0, ((49 + 3 * 100**2) / 52) ** 0.5, 1.0])
    assert levels.tolist() == torch.log2(rms.max() / rms).round().tolist()
    scaled = multiply_groups(v.clone(), levels, shapes, block, 1.0) / v
    expected = torch.exp2(levels.float()).repeat_interleave(torch.tensor([51, 52, 7]))
    assert scaled.equal(expected)


def test_levels_are_powers_of_two_below_the_largest_group():
    v = torch.cat([torch.full((64,), 2.0**-k) for k in (0, 1, 3, 40)] + [torch.zeros(64)])
    levels = group_levels(v, tensors(64, 64, 64, 64, 64), 8)
    assert levels.tolist() == [0, 1, 3, 31, 31]


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
    assert peaks < len(frame) < 1.03 * peaks + 60


def test_nothing_is_sent_of_a_zero_vector():
    assert quantized(torch.zeros(50)) is None


def test_a_zero_tensor_stays_small():
    v, shapes = torch.cat((normal(500), torch.zeros(500))), tensors(500, 500)
    u = quantized(v, shapes, 4).decode()
    assert float(u[500:].norm()) < 0.02 * float(u[:500].norm())


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


def test_bytes_of_a_known_upload():
    """The format and the rotation stay as they are: earlier archives must be readable."""
    v = torch.arange(-20.0, 20.0, dtype=torch.float64).square()
    upload = quantized(v, tensors(30, 10), 8, seed=5)
    codes = upload.to_codes()
    assert codes.codes.numpy().tobytes().hex() == "b8ab0800cbc13e00"
    assert float(codes.step) == pytest.approx(923.5841128745042, rel=1e-12)


def test_extreme_vectors_have_finite_uploads():
    tiny = torch.zeros(64)
    tiny[0] = 1.4e-45
    assert quantized(tiny) is None or torch.isfinite(quantized(tiny).decode()).all()
    huge = normal(4096) * 1e33
    upload = quantized(huge, block=32)
    assert relative_error(huge / 1e33, upload.decode() / 1e33) < 2 * expected_error(32)


def test_a_model_bounds_the_memory_that_a_frame_can_ask_for():
    dimensions = PeakReader().dimensions(tensors(1_000_000))
    assert max(dimensions) < 1.2 * 1_000_000


SHAPES, BLOCK = tensors(1000), 16
START = 2 * NUMBER_BITS
LEVEL_COUNT = 7


def upload_with(**parts):
    """Return the codes of a valid upload with other parts."""
    upload = quantized(normal(1000), SHAPES, BLOCK)
    return replace(upload, **parts).to_codes()


def with_bits(change):
    """Return the codes of a valid upload whose bits a function changes."""
    codes = upload_with()
    changed = to_bytes(change(from_bytes(codes.codes.numpy())))
    return replace(codes, codes=torch.from_numpy(changed), bucket=len(changed))


def ones(first, last):
    def change(bits):
        bits[first:last] = 1
        return bits

    return with_bits(change)


def peaks_with(position, value):
    peaks = quantized(normal(1000), SHAPES, BLOCK).peaks.clone()
    peaks[position] = value
    return upload_with(peaks=peaks)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (replace(upload_with(), bits=9), "has bytes, not 9 bits"),
        (with_bits(lambda bits: bits[:START]), "too short"),
        (upload_with(block=0x10000), "blocks of 0 coordinates"),
        (upload_with(block=MAX_BLOCK + 1), f"blocks of {MAX_BLOCK + 1}"),
        (ones(START, None), "ends before its 7 levels"),
        (upload_with(levels=torch.full((LEVEL_COUNT,), LEVELS)), "levels .* from 0 to 31"),
        (upload_with(levels=torch.full((LEVEL_COUNT,), -1)), "levels .* from 0 to 31"),
        (with_bits(lambda bits: bits[:-8]), "must have 63 peaks"),
        (with_bits(lambda bits: np.append(bits, np.zeros(8, np.uint8))), "must have 63 peaks"),
        (ones(-1, None), "last byte .* not filled with zeros"),
        (peaks_with(-1, 2 * 8), "outside its block"),
        (upload_with(scale=torch.zeros(1)), "above 0 and finite"),
        (upload_with(scale=torch.full((1,), math.inf)), "above 0 and finite"),
        (upload_with(scale=torch.full((1,), math.nan)), "above 0 and finite"),
        (upload_with(scale=torch.full((1,), 2e35)), "above 0 and finite"),
        (replace(upload_with(), low=torch.ones(1)), "another grid"),
        (replace(upload_with(), step=torch.ones(2), low=torch.zeros(2), bucket=50), "another grid"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_uploads_are_refused(codes, message):
    with pytest.raises(WireError, match=message):
        PeakReader().read(Packet(ROUND, codes), SHAPES)


def test_an_upload_without_codes_is_refused():
    with pytest.raises(WireError, match="must hold codes"):
        PeakReader().read(Packet(ROUND, Dense(torch.zeros(1000))), SHAPES)


@pytest.mark.parametrize("seed", range(200))
def test_damaged_uploads_are_refused_or_read(seed):
    """Whatever the bytes are, a reader raises WireError or returns a vector of the model."""
    generator = np.random.default_rng(seed)
    codes = upload_with()
    damaged = codes.codes.numpy().copy()
    for position in generator.integers(len(damaged), size=generator.integers(1, 5)):
        damaged[position] = generator.integers(256)
    damaged = damaged[: generator.integers(len(damaged) + 1)] if seed % 4 == 0 else damaged
    reply = Packet(ROUND, replace(codes, codes=torch.from_numpy(damaged), bucket=len(damaged)))
    try:
        upload = PeakReader().read(reply, SHAPES)
    except WireError:
        return
    assert torch.isfinite(upload.decode()).all()
    assert upload.decode().shape == (1000,)
