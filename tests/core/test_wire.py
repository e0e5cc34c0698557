"""Packets to frames and back, and the envelope of a frame."""

import math
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch

from aquila.core.envelope import Flag, Frame, Kind, parse, seal
from aquila.core.packet import Codes, Dense, Packet, WireError, code_dtype
from aquila.core.passes import plain
from aquila.core.quantize import levels_for_bits, stochastic_round
from aquila.core.random import Key
from aquila.core.wire import pack, unpack

FLOATS = [torch.float32, torch.float64]
WIDTHS = range(1, 33)
ENVELOPE_BYTES = 7


def raw(tensor):
    return tensor.numpy().tobytes()


def random_codes(dimension, bits, dtype=torch.float32, bucket=None):
    """Return codes that use their full width, with a different grid per bucket."""
    rng = np.random.default_rng((dimension, bits))
    bucket = bucket or dimension
    grids = -(-dimension // bucket)
    codes = torch.from_numpy(rng.integers(0, 2**bits, dimension)).to(code_dtype(bits))
    codes[0], codes[-1] = 0, 2**bits - 1
    low = -torch.from_numpy(rng.random(grids)).to(dtype)
    step = torch.from_numpy(rng.random(grids)).to(dtype)
    return Codes(codes, bits, low, step, bucket)


def dithered_codes(dimension, bits, dtype=torch.float32, seed=5, density=0.02):
    """Return codes rounded with a dither; about `density` of them are nonzero."""
    rng = np.random.default_rng((dimension, bits))
    dither = plain.dither(seed, torch.empty(dimension, dtype=torch.float64))
    v = rng.laplace(size=dimension)
    v[rng.integers(dimension)] *= 100  # one coordinate of many steps, if they fit
    step, centre = np.abs(v).sum() / (density * dimension), 2 ** (bits - 1) - 1
    steps = np.sign(v) * np.floor(np.abs(v) / step + dither.numpy())
    codes = torch.from_numpy(steps.clip(-centre, centre + 1) + centre).to(code_dtype(bits))
    step = torch.tensor([step], dtype=dtype)
    low = -(step * torch.tensor(centre, dtype=dtype))
    return Codes(codes, bits, low, step, dimension, dither_seed=seed)


def assert_same_codes(left, right):
    assert (left.bits, left.codes.dtype) == (right.bits, right.codes.dtype)
    assert left.dither_seed == right.dither_seed
    for one, other in (
        (left.codes, right.codes),
        (left.low, right.low),
        (left.step, right.step),
        (left.decode(), right.decode()),
    ):
        assert one.dtype == other.dtype
        assert raw(one) == raw(other)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bits", WIDTHS)
def test_codes_of_every_width_round_trip(bits, dtype):
    for dimension in (2, 8, 37):
        sent = random_codes(dimension, bits, dtype)
        got = unpack(pack(Packet(3, sent))).vector
        assert_same_codes(got, sent)
        assert got.bucket == dimension


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bits", [1, 6, 13, 32])
@pytest.mark.parametrize("bucket", [1, 7, 8, 64, 99])
def test_buckets_round_trip(bucket, bits, dtype):
    sent = random_codes(100, bits, dtype, bucket)
    got = unpack(pack(Packet(3, sent))).vector
    assert got.bucket == bucket
    assert_same_codes(got, sent)


def test_bucket_longer_than_the_vector_is_one_grid():
    sent = random_codes(10, 4)
    longer = Codes(sent.codes, sent.bits, sent.low, sent.step, 4096)
    assert pack(Packet(1, longer)) == pack(Packet(1, sent))


@pytest.mark.parametrize("dtype", FLOATS)
def test_dense_vector_round_trips_bit_for_bit(dtype):
    limits = torch.finfo(dtype)
    special = [0.0, -0.0, limits.max, limits.min, limits.tiny, limits.smallest_normal / 4, 1 / 3]
    values = torch.tensor(special, dtype=dtype)
    got = unpack(pack(Packet(3, Dense(values)))).vector
    assert got.values.dtype == dtype
    assert raw(got.values) == raw(values)


def test_dense_vector_may_be_empty():
    assert unpack(pack(Packet(3, Dense(torch.zeros(0))))).vector.dimension == 0


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bits", WIDTHS)
def test_upload_on_one_grid_adds_at_most_64_bytes_to_its_codes(bits, dtype):
    for dimension in (1, 3, 1000):
        codes = random_codes(dimension, bits, dtype)
        frame = pack(Packet(2**32 - 1, codes, ack=2**32 - 2))
        assert len(frame) - math.ceil(bits * dimension / 8) <= 64


def test_qsgd_with_6_bits_takes_at_most_6_bits_per_coordinate():
    dimension = 1001
    v = torch.randn(dimension, generator=torch.Generator().manual_seed(1))
    codes = stochastic_round(v, levels_for_bits(6), Key((1,)))
    frame = parse(pack(Packet(0, codes)))
    assert frame.paper_bits == 6 * dimension
    assert frame.body_bytes <= 2 * 4 + math.ceil(6 * dimension / 8)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bucket", [None, 100])
@pytest.mark.parametrize("bits", WIDTHS)
def test_nearly_equal_codes_are_coded_and_round_trip(bits, bucket, dtype):
    sent = random_codes(1000, bits, dtype, bucket)
    sent.codes[3:-3] = 2 ** (bits - 1)
    frame = pack(Packet(3, sent))
    assert parse(frame).kind is Kind.CODED
    assert parse(frame).paper_bits == 1000 * bits
    assert_same_codes(unpack(frame).vector, sent)
    assert pack(unpack(frame)) == frame


def test_uniform_codes_are_sent_at_fixed_width():
    assert parse(pack(Packet(3, random_codes(1000, 6)))).kind is Kind.FIXED


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bits", WIDTHS[1:])
def test_dithered_codes_round_trip_with_their_seed(bits, dtype):
    for dimension, seed in ((1, 0), (37, 2**32 - 1), (3000, 5)):
        sent = dithered_codes(dimension, bits, dtype, seed)
        frame = pack(Packet(3, sent))
        assert parse(frame).kind is Kind.DITHERED
        assert (parse(frame).paper_bits, parse(frame).bucket) == (dimension * bits, 0)
        got = unpack(frame).vector
        assert_same_codes(got, sent)
        assert got.bucket == dimension
        assert pack(unpack(frame)) == frame


def test_any_codes_around_zero_can_be_sent_as_dithered():
    """A dither that did not round the codes costs bytes and changes nothing else."""
    sent = dithered_codes(5000, 4, density=1)
    equal = (torch.full_like(sent.codes, code) for code in (0, 7, 15))
    for codes in (sent.codes.flip(0), *equal):
        other = replace(sent, codes=codes)
        assert_same_codes(unpack(pack(Packet(3, other))).vector, other)


@pytest.mark.parametrize("density", [0.004, 0.05])
def test_dither_that_rounded_the_codes_saves_bytes(density):
    sent = dithered_codes(20_000, 3, density=density)
    with_dither, without, with_others = (
        len(pack(Packet(3, replace(sent, dither_seed=seed))))
        for seed in (sent.dither_seed, None, 6)
    )
    assert with_dither < 0.7 * without
    assert with_dither < 0.7 * with_others


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bits": 1}, "two bits"),
        ({"low": torch.zeros(2), "step": torch.ones(2), "bucket": 2}, "one grid"),
        ({"low": torch.tensor([-1.0])}, "zero"),
        ({"low": torch.tensor([-1.5000001])}, "zero"),
        ({"dither_seed": -1}, "32 bits"),
        ({"dither_seed": 2**32}, "32 bits"),
        ({"codes": torch.tensor([0, 1, 8, 3])}, "do not fit"),
        ({"step": torch.tensor([math.nan])}, "grid of the codes"),
    ],
)
def test_dithered_codes_need_a_seed_and_one_grid_around_zero(change, reason):
    valid = Codes(torch.tensor([0, 1, 1, 0]), 3, torch.tensor([-1.5]), torch.tensor([0.5]), 4, 1)
    assert_same_codes(
        unpack(pack(Packet(1, valid))).vector, replace(valid, codes=valid.codes.byte())
    )
    with pytest.raises(WireError, match=reason):
        pack(Packet(1, replace(valid, **change)))


def test_skip_is_only_the_envelope():
    frame = pack(Packet(5))
    assert len(frame) == ENVELOPE_BYTES
    packet = unpack(frame)
    assert (packet.round, packet.vector, packet.ack, packet.refused) == (5, None, -1, False)
    assert parse(frame).paper_bits == 0


def test_refusal_is_not_a_skip():
    assert unpack(pack(Packet(5, refused=True))).refused


@pytest.mark.parametrize("ack", [-1, 0, 41, 2**32 - 2])
@pytest.mark.parametrize("round_", [0, 42, 2**32 - 1])
def test_round_and_ack_round_trip(round_, ack):
    packet = unpack(pack(Packet(round_, ack=ack)))
    assert (packet.round, packet.ack) == (round_, ack)


def test_scalars_round_trip_bit_for_bit_and_in_order():
    scalars = {"drift": 1 / 3, "_b2": -0.0, "a" * 32: 5e-324, "big": 1.7976931348623157e308}
    got = unpack(pack(Packet(1, Dense(torch.ones(3)), scalars))).scalars
    assert list(got) == list(scalars)
    for name, value in scalars.items():
        assert struct.pack("<d", got[name]) == struct.pack("<d", value)


def test_frame_holds_at_most_255_scalars():
    scalars = {f"s{i}": float(i) for i in range(255)}
    assert unpack(pack(Packet(1, scalars=scalars))).scalars == scalars
    with pytest.raises(WireError, match="256 scalars"):
        pack(Packet(1, scalars={**scalars, "one_more": 1.0}))


@pytest.mark.parametrize("name", ["", "a" * 33, "über", "two words", "1st", "a.b", "a\n"])
def test_invalid_name_of_a_scalar_is_refused(name):
    with pytest.raises(WireError, match="not a valid name for a scalar"):
        pack(Packet(1, scalars={name: 1.0}))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_scalar_that_is_not_finite_is_refused(value):
    with pytest.raises(WireError, match="scalar loss is"):
        pack(Packet(1, scalars={"loss": value}))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", FLOATS)
def test_dense_vector_that_is_not_finite_is_refused(value, dtype):
    with pytest.raises(WireError, match="NaN or infinite"):
        pack(Packet(1, Dense(torch.tensor([1.0, value], dtype=dtype))))


@pytest.mark.parametrize(
    ("low", "step"),
    [(math.nan, 1.0), (-math.inf, 1.0), (0.0, math.nan), (0.0, math.inf), (0.0, -1.0), (0.0, 3e38)],
)
def test_grid_that_is_not_finite_or_decreases_is_refused(low, step):
    # 3e38 is finite, but code 3 is three times as large
    codes = Codes(torch.tensor([0, 1]), 2, torch.tensor([low]), torch.tensor([step]), 2)
    with pytest.raises(WireError, match="grid of the codes"):
        pack(Packet(1, codes))


@pytest.mark.parametrize(("code", "bits"), [(-1, 3), (8, 3), (2, 1), (2**32, 32)])
def test_code_that_does_not_fit_its_width_is_refused(code, bits):
    codes = Codes(torch.tensor([0, code]), bits, torch.zeros(1), torch.ones(1), 2)
    with pytest.raises(WireError, match="do not fit"):
        pack(Packet(1, codes))


@pytest.mark.parametrize("bits", [0, 33, 256])
def test_width_outside_1_to_32_is_refused(bits):
    codes = Codes(torch.tensor([0, 0]), bits, torch.zeros(1), torch.ones(1), 2)
    with pytest.raises(WireError, match="1 to 32"):
        pack(Packet(1, codes))


@pytest.mark.parametrize(("grids", "bucket"), [(1, 2), (3, 2), (2, 4), (2, 0)])
def test_number_of_grids_must_match_the_buckets(grids, bucket):
    codes = Codes(torch.tensor([0, 1, 0, 1]), 1, torch.zeros(grids), torch.ones(grids), bucket)
    with pytest.raises(WireError, match="bucket"):
        pack(Packet(1, codes))


def test_codes_without_coordinates_are_refused():
    empty = Codes(torch.tensor([], dtype=torch.uint8), 1, torch.zeros(1), torch.ones(1), 1)
    with pytest.raises(WireError, match="without coordinates"):
        pack(Packet(1, empty))


def test_other_float_types_are_refused():
    with pytest.raises(WireError, match="float16"):
        pack(Packet(1, Dense(torch.ones(2, dtype=torch.float16))))


@pytest.mark.parametrize(
    "packet",
    [
        Packet(-1),
        Packet(2**32),
        Packet(1, ack=-2),
        Packet(1, ack=2**32 - 1),
        Packet(1, refers_to=-1),
        Packet(1, refers_to=2**32),
    ],
)
def test_number_that_does_not_fit_the_header_is_refused(packet):
    with pytest.raises(WireError, match="does not fit"):
        pack(packet)


@pytest.mark.parametrize("vector", [Dense(torch.ones(5)), random_codes(5, 3), dithered_codes(5, 3)])
def test_unexpected_dimension_is_refused(vector):
    frame = pack(Packet(1, vector))
    assert unpack(frame, 5).vector.dimension == 5
    with pytest.raises(WireError, match="5 coordinates where 6 are expected"):
        unpack(frame, 6)


def test_skip_has_no_dimension():
    assert unpack(pack(Packet(1)), 6).vector is None


def test_envelope_round_trips_with_any_body():
    frame = Frame(
        Kind.FIXED, Flag.DOUBLE | Flag.REFUSED, 200, 9, 8, 6, 77, 5, {"loss": 1.0}, b"any bytes"
    )
    parsed = parse(seal(frame))
    assert bytes(parsed.body) == frame.body
    for name in (
        "kind",
        "flags",
        "bits",
        "round",
        "ack",
        "refers_to",
        "dimension",
        "bucket",
        "scalars",
    ):
        assert getattr(parsed, name) == getattr(frame, name), name
    assert (parsed.body_bytes, parsed.paper_bits) == (9, 200 * 77)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bucket", [None, 1, 512])
@pytest.mark.parametrize("bits", [1, 6, 8, 13, 16, 25, 32])
@pytest.mark.parametrize("equal", [0, 9000])
def test_frame_decodes_to_the_same_bits_on_cpu_and_gpu(bits, bucket, dtype, equal):
    codes = random_codes(10_007, bits, dtype, bucket)
    codes.codes[:equal] = 0
    frame = pack(Packet(1, codes))
    vector = unpack(frame).vector
    on_gpu = unpack(frame, device="cuda").vector
    assert on_gpu.decode().is_cuda
    assert raw(on_gpu.decode().cpu()) == raw(vector.decode())
    assert pack(Packet(1, on_gpu)) == frame


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("dtype", FLOATS)
def test_dithered_codes_decode_to_the_same_bits_on_cpu_and_gpu(dtype):
    frame = pack(Packet(1, dithered_codes(10_007, 3, dtype)))
    on_gpu = unpack(frame, device="cuda").vector
    assert raw(on_gpu.decode().cpu()) == raw(unpack(frame).vector.decode())
    assert pack(Packet(1, on_gpu)) == frame
