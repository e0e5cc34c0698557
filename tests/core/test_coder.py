"""The C coder: round trips, a second reader, sizes against the entropy, threads, bad input."""

from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aquila.core.innovation import aquila_level, measure
from aquila.core.packet import Codes, Packet, code_dtype
from aquila.core.quantize import levels_for_bits, midrise, stochastic_round
from aquila.core.random import Key
from aquila.core.wire import pack, packed_size
from aquila.native import coder
from helpers import frame_reader

WIDTHS = range(1, 33)
MILLION = 1_000_000


def item_type(bits):
    return torch.empty(0, dtype=code_dtype(bits)).numpy().dtype


def encoded(codes, bits):
    return coder.encode(codes.astype(item_type(bits)), bits)


def decoded(body, count, bits, dtype=None):
    codes = np.full(count, 77, dtype or item_type(bits))
    coder.decode(body, codes, bits)
    return codes


def assert_round_trip(codes, bits):
    body = encoded(codes, bits)
    assert np.array_equal(decoded(body, len(codes), bits), codes)
    assert len(body) <= 1.001 * packed_size(len(codes), bits) + 64
    return body


def read_by_second_reader(body, count, bits):
    source = frame_reader.Source(body)
    codes, segments = frame_reader.read_segments(source, count, bits)
    assert source.bits_left == 0
    return codes, segments


# ---- distributions of codes ----


def around(centre, distances, bits):
    return (centre + distances.astype(np.int64)) % 2**bits


def constant(rng, n, bits):
    return np.full(n, rng.integers(2**bits))


def two_values(rng, n, bits):
    return rng.integers(2**bits, size=2)[(rng.random(n) < rng.random()).astype(int)]


def with_exceptions(rng, n, bits):
    return np.where(rng.random(n) < 0.05, uniform(rng, n, bits), rng.integers(2**bits))


def with_signed_exceptions(rng, n, bits):
    tail = np.where(rng.random(n) < 0.04, np.round(20 * rng.standard_normal(n)), 0)
    return around(rng.integers(2**bits), tail - rng.integers(0, 2, n), bits)


def mid_rise(rng, n, bits):
    scale = 2 ** rng.uniform(-2, max(bits - 2, -1))
    return np.clip(2 ** (bits - 1) + np.floor(scale * rng.standard_normal(n)), 0, 2**bits - 1)


def uniform(rng, n, bits):
    return rng.integers(0, 2**bits, n)


def heavy_tail(rng, n, bits):
    tail = np.clip(rng.uniform(0.2, 3) * rng.standard_t(1.2, n), -(2.0**40), 2.0**40)
    return around(2 ** (bits - 1), np.round(tail), bits)


def wrapping_around(rng, n, bits):
    return around(0, np.round(rng.uniform(0.3, 5) * rng.standard_normal(n)), bits)


def many_rare(rng, n, bits):
    """Return two frequent values that are not neighbours, and many values that occur about once."""
    frequent = np.where(rng.random(n) < 0.5, 3, 0)
    return around(0, np.where(rng.random(n) < 0.02, uniform(rng, n, bits), frequent), bits)


def pieces(rng, n, bits):
    kinds = rng.choice(len(DISTRIBUTIONS) - 1, 3)
    return np.concatenate([DISTRIBUTIONS[kind](rng, n, bits) for kind in kinds])[-n:]


DISTRIBUTIONS = [
    constant, two_values, with_exceptions, with_signed_exceptions, mid_rise, uniform, heavy_tail,
    wrapping_around, many_rare, pieces,
]  # fmt: skip


def sample_of(distribution, seed, n, bits):
    return distribution(np.random.default_rng((seed, n, bits)), n, bits).astype(np.int64)


PINNED = [
    (2, 3064451784), (4, 1162984545), (6, 1398562450), (8, 3268615495), (12, 540673230),
]  # fmt: skip
PINNED_DITHERED = 1619869905
"""CRC-32 of bodies, the same with and without vector instructions."""


# ---- round trips ----


@settings(deadline=None, derandomize=True, max_examples=400)
@given(
    st.sampled_from(DISTRIBUTIONS), st.integers(0, 999), st.integers(1, 5000), st.integers(1, 32)
)
def test_codes_of_every_distribution_round_trip(distribution, seed, n, bits):
    codes = sample_of(distribution, seed, n, bits)
    body = assert_round_trip(codes, bits)
    assert body == encoded(codes, bits)
    assert read_by_second_reader(body, n, bits)[0] == codes.tolist()


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.data(), st.integers(1, 32))
def test_any_codes_round_trip(data, bits):
    codes = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=60))
    body = assert_round_trip(np.array(codes), bits)
    assert read_by_second_reader(body, len(codes), bits)[0] == codes


@pytest.mark.parametrize("n", [254, 255, 256, 257, 259, 511, 513, 1025, 8191, 8193, 140_000])
@pytest.mark.parametrize("bits", [1, 3, 8, 9, 16, 32])
def test_lengths_around_limits_of_states_and_chunks_round_trip(n, bits):
    for distribution in DISTRIBUTIONS:
        assert_round_trip(sample_of(distribution, 1, n, bits), bits)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("bits", [1, 2, 6, 8, 12, 32])
def test_a_million_codes_round_trip(distribution, bits):
    assert_round_trip(sample_of(distribution, 2, MILLION, bits), bits)


@pytest.mark.parametrize(("bits", "checksum"), PINNED)
def test_bodies_of_long_vectors_keep_their_bytes(bits, checksum):
    bodies = [encoded(sample_of(kind, 4, 300_001, bits), bits) for kind in DISTRIBUTIONS]
    assert crc32(b"".join(bodies)) == checksum


def test_dithered_bodies_of_long_vectors_keep_their_bytes():
    rng, bodies = np.random.default_rng(7), []
    for density in (1e-5, 1e-3, 0.1):
        sent = rng.random(200_001) < density
        codes = np.where(sent, rng.integers(0, 16, 200_001), 7).astype(np.uint8)
        bodies += [coder.encode_dithered(codes, 4, seed) for seed in (11, 32, 36)]
    assert crc32(b"".join(bodies)) == PINNED_DITHERED


def test_every_mode_is_chosen_for_narrow_and_for_wide_codes():
    chosen = set()
    for distribution in DISTRIBUTIONS:
        for bits in (8, 12):
            codes = sample_of(distribution, 3, 60_000, bits)
            _, segments = read_by_second_reader(encoded(codes, bits), len(codes), bits)
            chosen |= {(bits, mode) for mode, _ in segments}
    narrow = {(8, mode) for mode in range(5)}
    assert chosen == narrow | {(12, mode) for mode in range(5) if mode != frame_reader.DIRECT}


@pytest.mark.parametrize("bits", [9, 12, 15])
def test_the_body_does_not_depend_on_the_integer_type(bits):
    codes = sample_of(mid_rise, 4, 3000, bits)
    bodies = {coder.encode(codes.astype(dtype), bits) for dtype in ("i2", "u2", "i4", "i8", "u8")}
    assert len(bodies) == 1
    for dtype in ("i2", "u4", "i8"):
        assert np.array_equal(decoded(*bodies, 3000, bits, dtype), codes)


def test_four_threads_write_the_same_bytes_as_one():
    work = [
        (sample_of(kind, 5, 200_000, bits).astype(item_type(bits)), bits)
        for kind in DISTRIBUTIONS
        for bits in (2, 6, 12)
    ]
    expected = [coder.encode(codes, bits) for codes, bits in work]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(2):
            assert list(threads.map(lambda one: coder.encode(*one), work)) == expected
        read = threads.map(
            lambda body, one: decoded(body, len(one[0]), one[1]), expected, work, timeout=60
        )
        for got, (codes, _) in zip(read, work, strict=True):
            assert np.array_equal(got, codes)


# ---- sizes ----


def entropy_bytes(codes):
    _, counts = np.unique(codes, return_counts=True)
    return float(-(counts * np.log2(counts / counts.sum())).sum() / 8)


def samples(name, d):
    rng = np.random.default_rng((d, len(name)))
    draw = {
        "gaussian": rng.standard_normal,
        "laplace": lambda n: rng.laplace(size=n),
        "student": lambda n: rng.standard_t(3, n),
    }[name]
    return torch.from_numpy(draw(d)).float()


def aquila(v, b_min=1):
    return midrise(v, max(aquila_level(measure(v, torch.zeros_like(v))), b_min))


def zero_level(v, k):
    """Quantize v to multiples of k times its root mean square, with a level at 0."""
    step = k * v.square().mean().sqrt()
    numbers = (v / step).round().long()
    codes = numbers - numbers.min()
    bits = max(int(codes.max()).bit_length(), 1)
    low = numbers.min() * step
    return Codes(codes.to(code_dtype(bits)), bits, low.reshape(1), step.reshape(1), len(v))


QUANTIZERS = {
    "aquila": aquila,
    "aquila, b_min 2": lambda v: aquila(v, 2),
    "qsgd 6 bits": lambda v: stochastic_round(v, levels_for_bits(6), Key((1,))),
    "laq 6 bits": lambda v: midrise(v, 6),
    **{f"zero level, {k} rms": lambda v, k=k: zero_level(v, k) for k in (1, 2, 4, 6)},
}


@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.parametrize("name", ["gaussian", "laplace", "student"])
@pytest.mark.parametrize("d", [10, 1000, 30_000, MILLION])
def test_the_size_of_an_upload_is_close_to_the_entropy(quantizer, name, d):
    codes = QUANTIZERS[quantizer](samples(name, d))
    entropy = entropy_bytes(codes.codes.numpy())
    assert len(pack(Packet(1, codes))) <= 1.02 * entropy + 256


@pytest.mark.parametrize("quantizer", ["laq 6 bits", "qsgd 6 bits", "zero level, 1 rms"])
def test_layers_of_different_scales_take_less_than_their_joint_entropy(quantizer):
    layers = [samples("gaussian", 100_000) * scale for scale in (1, 0.1, 0.01, 0.3)]
    codes = QUANTIZERS[quantizer](torch.cat(layers))
    assert len(pack(Packet(1, codes))) < 0.9 * entropy_bytes(codes.codes.numpy())


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 6, 8, 9, 12, 15, 16, 24, 31, 32])
def test_incompressible_codes_take_about_their_fixed_width(bits):
    for n in (1, 100, 5000, 300_000):
        codes = sample_of(uniform, 6, n, bits)
        assert len(encoded(codes, bits)) <= 1.001 * packed_size(n, bits) + 64


@pytest.mark.parametrize("bits", WIDTHS)
def test_a_frame_is_never_longer_than_at_fixed_width(bits):
    low, step = torch.zeros(1), torch.full((1,), 2.0**-32)
    for d in [*range(1, 41), 300]:
        for distribution in DISTRIBUTIONS:
            codes = torch.from_numpy(sample_of(distribution, 7, d, bits))
            frame = pack(Packet(1, Codes(codes, bits, low, step, d)))
            assert len(frame) <= 19 + packed_size(d, bits)


@pytest.mark.parametrize("scale", [0.6, 2.0, 7.0])
def test_direct_mode_takes_as_many_bytes_as_a_reference_coder(scale):
    constriction = pytest.importorskip("constriction")
    rng = np.random.default_rng(8)
    codes = np.clip(np.round(32 + scale * rng.standard_normal(200_000)), 0, 63).astype(np.uint8)
    frequencies = np.bincount(codes, minlength=64) / len(codes)
    model = constriction.stream.model.Categorical(frequencies.astype(np.float32), perfect=False)
    reference = constriction.stream.stack.AnsCoder()
    reference.encode_reverse(codes.astype(np.int32), model)
    body = coder.encode(codes, 6)
    assert body[0] == frame_reader.DIRECT
    assert len(body) <= 1.01 * 4 * len(reference.get_compressed()) + 64


# ---- fixed width, compared with a reference that sets one bit at a time ----


def bit_by_bit(codes, bits):
    packed = bytearray((len(codes) * bits + 7) // 8)
    for i, code in enumerate(codes):
        for j in range(bits):
            position = i * bits + j
            packed[position // 8] |= (code >> j & 1) << position % 8
    return bytes(packed)


def sample(count, bits):
    codes = np.random.default_rng((count, bits)).integers(0, 2**bits, count, dtype=np.int64)
    codes[-1] = 2**bits - 1  # padding would show in the last code
    return codes


def packed_bytes(codes, bits, dtype=None):
    return coder.pack(np.array(codes).astype(dtype or item_type(bits)), bits)


def unpacked(packed, count, bits, dtype=None):
    codes = np.full(count, 77, dtype or item_type(bits))
    coder.unpack(packed, codes, bits)
    return codes


@pytest.mark.parametrize("bits", WIDTHS)
def test_every_width_and_count_packs_like_the_reference(bits):
    for count in [*range(1, 18), 101, 256]:
        codes = sample(count, bits)
        packed = packed_bytes(codes, bits)
        assert packed == bit_by_bit(codes.tolist(), bits), count
        assert len(packed) == packed_size(count, bits)
        assert unpacked(packed, count, bits).tolist() == codes.tolist(), count


@pytest.mark.parametrize("bits", WIDTHS)
def test_codes_do_not_overlap(bits):
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


@pytest.mark.parametrize(("bits", "dtype"), [(1, "u1"), (9, "i2"), (9, "i4"), (9, "i8")])
def test_codes_are_read_into_the_given_type(bits, dtype):
    codes = unpacked(packed_bytes([1, 0, 1, 1], bits, dtype), 4, bits, dtype)
    assert codes.tolist() == [1, 0, 1, 1]


@settings(deadline=None, derandomize=True)
@given(st.data(), st.integers(1, 32))
def test_any_codes_round_trip_through_packing(data, bits):
    codes = data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=40))
    packed = packed_bytes(codes, bits)
    assert packed == bit_by_bit(codes, bits)
    assert unpacked(packed, len(codes), bits).tolist() == codes


@pytest.mark.parametrize("body", [b"", b"\x05", b"\x05\x00\x00", b"\x05\x80"])
def test_packed_codes_with_a_wrong_length_or_padding_are_refused(body):
    with pytest.raises(ValueError, match=r"packed codes|coded body"):
        unpacked(body, 5, 3)


# ---- bad arguments ----

FIVE = np.arange(5, dtype=np.uint8)
READ_ONLY = np.zeros(5, np.uint8)
READ_ONLY.flags.writeable = False
TO_WRITE = {
    "width 0": (FIVE, 0),
    "width 33": (FIVE.astype("i8"), 33),
    "negative width": (FIVE, -1),
    "width that wraps 32 bits": (FIVE, 2**32 + 3),
    "width as text": (FIVE, "6"),
    "width as a float": (FIVE, 6.0),
    "no width": (FIVE,),
    "wide codes in bytes": (FIVE, 9),
    "narrow codes in words": (FIVE.astype("i2"), 8),
    "32 bits in two bytes": (FIVE.astype("i2"), 32),
    "items of three bytes": (np.zeros(5, "S3"), 9),
    "no codes": (FIVE[:0], 3),
    "codes at odd addresses": (np.ndarray(5, "i2", bytearray(11), offset=1), 9),
    "codes with gaps": (np.arange(10, dtype=np.uint8)[::2], 4),
    "text": ("codes", 3),
    "a list": ([1, 2, 3], 3),
    "nothing": (None, 3),
}
TO_READ = {
    **{name: (b"\x03\x05\x00\x00", *given) for name, given in TO_WRITE.items()},
    "a read-only output": (b"\x03\x05\x00\x00", READ_ONLY, 3),
    "bytes as output": (b"\x03\x05\x00\x00", bytes(5), 3),
    "a body of text": ("body", FIVE.copy(), 3),
    "an empty body": (b"", FIVE.copy(), 3),
}
ERRORS = (ValueError, TypeError, BufferError)


@pytest.mark.parametrize("name", TO_WRITE)
@pytest.mark.parametrize("write", [coder.encode, coder.pack])
def test_invalid_arguments_of_writers_are_refused(write, name):
    with pytest.raises(ERRORS):
        write(*TO_WRITE[name])


@pytest.mark.parametrize("name", TO_READ)
@pytest.mark.parametrize("read", [coder.decode, coder.unpack])
def test_invalid_arguments_of_readers_are_refused(read, name):
    with pytest.raises(ERRORS):
        read(*TO_READ[name])


@pytest.mark.parametrize("bits", [1, 4, 7, 9, 12, 17, 31])
@pytest.mark.parametrize("write", [encoded, packed_bytes])
def test_codes_wider_than_their_bits_are_refused(write, bits):
    codes = np.random.default_rng(bits).integers(0, 2**bits, 5000)
    write(codes, bits)
    codes[4321] |= 2**bits
    with pytest.raises(ValueError, match=f"do not fit {bits} bits"):
        write(codes, bits)


def test_a_wrong_number_of_codes_is_refused():
    body = encoded(sample_of(mid_rise, 9, 1000, 6), 6)
    for count in (1, 999, 1001, 5000):
        with pytest.raises(ValueError, match="coded body"):
            decoded(body, count, 6)
