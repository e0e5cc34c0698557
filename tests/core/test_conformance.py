"""Rules of docs/wire-format*.md that other implementations depend on, tested on both readers."""

import math
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aquila.core import envelope, wire
from aquila.core.envelope import Kind, checksum_of_order, parse
from aquila.core.packet import Codes, Dense, Packet, RelayedRound, RelayedUploads, WireError
from aquila.core.wire import pack, unpack
from aquila.native.checksum import crc32
from aquila.runtime.reference import ReferenceModel, resolve_model, with_checksum
from helpers import frame_builder, frame_reader
from helpers.frame_builder import (
    CODED,
    DENSE,
    DITHERED,
    DOUBLE,
    EMPTY,
    FIXED,
    FRESH,
    REFUSED,
    RELAYED,
    RawFrame,
    doubles,
    floats,
    relayed_round,
    scalar,
)
from helpers.frame_reader.dithered import FALL, INITIAL, RISE

DOCS = Path(__file__).parents[2] / "docs"
SEED = 7


def fixed(code, low, step, bits=32, double=False):
    grid = (doubles if double else floats)(low, step)
    body = grid + frame_builder.bit_string([(code, bits)])
    return RawFrame(kind=FIXED, flags=DOUBLE * double, bits=bits, dimension=1, body=body)


def dithered(distances, bits=3, sparsity=None, stream=None, step=0.5):
    body = floats(step) + frame_builder.dithered(distances, SEED, sparsity, stream=stream)
    return RawFrame(kind=DITHERED, bits=bits, dimension=len(distances), body=body)


def read_by_both(frame):
    """Return the packet of a valid frame; both readers must agree on it."""
    packet, second = unpack(frame.bytes()), frame_reader.read(frame.bytes())
    has_values = packet.vector is not None and not second.rounds
    values = packet.vector.decode().tolist() if has_values else []
    letters = f"<{len(values)}d"
    assert struct.pack(letters, *second.values) == struct.pack(letters, *values)
    flags = packet.refused, packet.fresh
    assert flags == (second.refused, second.fresh)
    assert dict(packet.scalars) == second.scalars
    if second.rounds:
        assert contents_of(packet.vector.rounds) == contents_of(second.rounds)
    return packet


def contents_of(rounds):
    return [(one.base, one.factor, [*one.weights], [*one.frames]) for one in rounds]


def assert_both_refuse(frame):
    with pytest.raises(WireError):
        unpack(frame.bytes())
    with pytest.raises(frame_reader.FrameError):
        frame_reader.read(frame.bytes())


# ---- arithmetic ----


@pytest.mark.parametrize(
    ("code", "low", "step", "value"),
    [
        (2**24 + 1, 0.0, 1.0, 2.0**24),
        (2**24 + 3, 0.0, 1.0, 2.0**24 + 4),
        (2**24 + 1, 1.0, 1.0, 2.0**24),  # the sum is a tie, too
        (2**32 - 1, 0.0, 1.0, 2.0**32),
        (3, 0.0, 2.0**-149, 3 * 2.0**-149),
        (1, -(2.0**-126), 2.0**-149, 2.0**-149 - 2.0**-126),
        (3, -1.0, struct.unpack("<f", floats(1 / 3))[0], 0.0),  # fused: 2^-25
    ],
)
def test_float32_grid_rounds_to_even_twice_and_keeps_subnormals(code, low, step, value):
    assert read_by_both(fixed(code, low, step)).vector.decode().tolist() == [value]


@pytest.mark.parametrize(
    ("code", "low", "step", "value"),
    [
        (2**32 - 1, 2.0**53, 1.0, 2.0**53 + 2**32),  # a tie
        (3, 0.0, 5e-324, 1.5e-323),
        (3, -1.0, 1 / 3, 0.0),  # fused: -2^-54
    ],
)
def test_float64_grid_rounds_to_even_twice_and_keeps_subnormals(code, low, step, value):
    assert read_by_both(fixed(code, low, step, double=True)).vector.decode().tolist() == [value]


def test_low_of_a_dithered_frame_is_a_rounded_product():
    step = struct.unpack("<f", floats(1 / 3))[0]
    vector = read_by_both(dithered([0, 1, -1], bits=26, step=step)).vector
    centre = 2**25 - 1  # float32 rounds it to 2^25
    assert vector.low.tolist() == [-(2.0**25) * step]
    assert vector.codes.tolist() == [centre, centre + 1, centre - 1]
    assert vector.decode()[0] == 0


def zero_signs(frame):
    """Return whether each value of a frame of zeros is -0."""
    values = read_by_both(frame).vector.decode()
    assert not values.any()
    return values.signbit().tolist()


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(
    ("low", "step", "negative"),
    [(0.0, 0.0, False), (0.0, -0.0, False), (-0.0, 0.0, False), (-0.0, -0.0, True)],
)
def test_signs_of_zero_are_kept_in_the_arithmetic(low, step, negative, double):
    assert zero_signs(fixed(3, low, step, bits=2, double=double)) == [negative]


@pytest.mark.parametrize("step", [0.0, -0.0])
def test_dithered_codes_with_a_step_of_zero_decode_to_positive_zero(step):
    assert zero_signs(dithered([0, 1, -1], step=step)) == [False] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("low", "step", "is_dithered"),
    [(0.0, 0.0, True), (0.0, -0.0, True), (-0.0, 0.0, True), (-0.0, -0.0, False)],
)
def test_writer_keeps_signs_of_zero_of_codes_with_a_dither_seed(low, step, is_dithered, dtype):
    grid = (torch.tensor([number], dtype=dtype) for number in (low, step))
    sent = Codes(torch.tensor([3, 4, 2], dtype=torch.uint8), 3, *grid, 3, SEED)
    frame = pack(Packet(0, sent))
    assert (parse(frame).kind is Kind.DITHERED) == is_dithered
    decoded = unpack(frame).vector.decode()
    assert decoded.numpy().tobytes() == sent.decode().numpy().tobytes()
    assert pack(unpack(frame)) == frame


# ---- relayed bodies ----


def relayed(*rounds, dimension=1, **header):
    return RawFrame(kind=RELAYED, dimension=dimension, body=b"".join(rounds), **header)


def dense(*values, double=False):
    body = (doubles if double else floats)(*values)
    return RawFrame(kind=DENSE, flags=DOUBLE * double, dimension=len(values), body=body).bytes()


def test_header_of_a_relayed_frame_has_no_bits():
    frame, body = relayed(relayed_round(7, 1.0)), relayed_round(7, 1.0)
    assert frame.bytes()[:-4] == b"\xa3\x05\x03\x01" + body
    assert read_by_both(frame).vector.dimension == 1


def test_round_of_a_relayed_body_has_base_factor_count_and_replies():
    reply = dense(1.5)
    body = relayed_round(0x04030201, -2.0, (0.5, reply))
    assert body[:12] == b"\1\2\3\4" + doubles(-2.0)
    assert body[12:] == b"\1" + doubles(0.5) + bytes([len(reply)]) + reply
    vector = read_by_both(relayed(body, relayed_round(9, 0.0))).vector
    assert vector.rounds[0] == RelayedRound(0x04030201, -2.0, (0.5,), (reply,))
    assert vector.rounds[1] == RelayedRound(9, 0.0, (), ())


@pytest.mark.parametrize("double", [False, True])
def test_double_is_the_type_of_the_model_of_a_relayed_frame(double):
    replies = (1.0, dense(1.0)), (1.0, dense(1.0, double=True))
    frame = relayed(relayed_round(7, 1.0, *replies), flags=DOUBLE * double)
    dtypes = torch.float32, torch.float64
    assert read_by_both(frame).vector.dtype is dtypes[double]
    with pytest.raises(WireError, match="the difference is"):
        apply(frame, torch.zeros(1, dtype=dtypes[not double]), base=7)


def test_replies_of_a_relayed_frame_may_have_other_dimensions_and_invalid_bodies():
    replies = dense(1.0, 2.0, 3.0), RawFrame(kind=CODED, bits=0).bytes()
    vector = read_by_both(relayed(relayed_round(7, 1.0, *[(1.0, one) for one in replies]))).vector
    assert vector.rounds[0].frames == replies
    with pytest.raises(WireError):
        unpack(replies[1])


def apply(frame, theta, base):
    """Return the model that a frame leads to, for a device that holds this base."""
    packet = replace(unpack(frame.bytes()), refers_to=base)
    return resolve_model(packet, [ReferenceModel(theta, base)], decode)


def decode(reply):
    return unpack(reply).vector.decode()


def plain_sum(theta, factor, replies, letter):
    """Return the new coordinate, computed with the floats of Python as the page says."""
    total = 0.0
    for weight, upload in replies:
        total += weight * upload
    return struct.unpack(letter, struct.pack(letter, theta + total * factor))[0]


@pytest.mark.parametrize("letter", ["<f", "<d"])
@pytest.mark.parametrize(
    ("theta", "factor", "replies"),
    [
        (0.0, 1.0, [(3.0, 1 / 3), (-1.0, 1.0)]),  # the product rounds to 1; fused: not 0
        (1.0, 2.0**-30, [(2.0**60, 1.0), (1.0, 1.0), (-(2.0**60), 1.0)]),  # in another order: > 1
        (1.0, 0.1, [(0.1, 0.1), (0.1, 0.2), (0.1, 0.7)]),
        (1.0, -(2.0**-25), [(1.0, 1.0), (1.0, 2.0**-50)]),  # one rounding: 1 - 2^-24
        (2.0**-149, 0.5, [(1.0, 2.0**-149), (1.0, 2.0**-149)]),
        (-0.0, 1.0, []),
        (-0.0, -1.0, []),
        (0.0, -1.0, [(0.0, 1.0)]),
        (-0.0, 1.0, [(1.0, -0.0)]),
        (-0.0, -1.0, [(1.0, -0.0)]),
        (3.0, 0.0, [(7.0, 1.0)]),
    ],
)
def test_arithmetic_of_relayed_rounds(theta, factor, replies, letter):
    double = letter == "<d"
    frames = [(weight, dense(upload, double=True)) for weight, upload in replies]
    frame = relayed(relayed_round(7, factor, *frames), flags=DOUBLE * double)
    model = torch.tensor([theta], dtype=torch.float64 if double else torch.float32)
    (got,) = apply(frame, model, base=7).theta.tolist()
    assert struct.pack("<d", got) == struct.pack("<d", plain_sum(theta, factor, replies, letter))


def test_a_device_applies_the_rounds_from_the_last_base_that_it_holds():
    models = [with_checksum(torch.tensor([float(n)])) for n in range(4)]
    rounds = [relayed_round(model.checksum, 1.0, (1.0, dense(1.0))) for model in models[:-1]]
    frame = relayed(*rounds, refers_to=models[0].checksum)
    packet = read_by_both(frame)
    for held in (models[:1], models[1:2], models[2:3], models[:3], models[1::-1]):
        assert resolve_model(packet, held, decode).checksum == models[3].checksum
    assert resolve_model(packet, models[3:], decode) is None
    assert resolve_model(packet, [], decode) is None


def test_relayed_rounds_that_overflow_the_model_are_refused():
    frame = relayed(relayed_round(7, 1e300, (1.0, dense(1.0))))
    with pytest.raises(WireError, match="not finite"):
        apply(frame, torch.zeros(1), base=7)


def test_relayed_uploads_survive_packing():
    rounds = (
        RelayedRound(5, 0.1, (0.2, -0.0), (dense(1.0), dense(2.0))),
        RelayedRound(6, 1.0, (), ()),
    )
    for dtype in (torch.float32, torch.float64):
        packet = Packet(3, RelayedUploads(1, dtype, rounds), refers_to=5)
        frame = pack(packet)
        assert parse(frame).kind is Kind.RELAYED
        assert parse(frame).paper_bits == 0
        assert unpack(frame).vector == packet.vector
        assert pack(unpack(frame)) == frame


# ---- valid frames that the writer does not produce ----

VALID = {
    "dense, dimension 0": RawFrame(kind=DENSE),
    "dense, dimension 0, float64": RawFrame(kind=DENSE, flags=DOUBLE),
    "dense, fresh": RawFrame(kind=DENSE, flags=FRESH, dimension=1, body=floats(-0.0)),
    "fixed, step 0": fixed(3, 1.0, 0.0, bits=2),
    "fixed, step -0": fixed(3, 1.0, -0.0, bits=2),
    "fixed, low and step -0": fixed(3, -0.0, -0.0, bits=2),
    "fixed, step -0, float64": fixed(3, 1.0, -0.0, bits=2, double=True),
    "coded, step -0": RawFrame(
        kind=CODED, bits=3, dimension=5, body=floats(1.0, -0.0) + frame_builder.exceptions(5, 3)
    ),
    "coded, longer than fixed": RawFrame(
        kind=CODED, bits=1, dimension=1, body=floats(0.0, 1.0) + frame_builder.direct_segment([1])
    ),
    "dithered, step -0": dithered([0, 1, -1], step=-0.0),
    "dithered, fresh": replace(dithered([0, 1, -1]), flags=FRESH),
    "refused and fresh": RawFrame(flags=REFUSED | FRESH),
    "refused, with a scalar": RawFrame(flags=REFUSED, count=1, scalars=scalar(b"loss", -0.0)),
    "reply with ack": RawFrame(ack=9),
    "relayed, fresh": relayed(relayed_round(7, 1.0), flags=FRESH),
    "relayed, equal bases": relayed(relayed_round(7, 1.0), relayed_round(7, -0.0)),
    "relayed, refers to another base": relayed(relayed_round(7, 1.0), refers_to=8),
    "relayed, no coordinates": relayed(relayed_round(7, 1.0), dimension=0),
}


@pytest.mark.parametrize("name", VALID)
def test_unusual_valid_frame_is_accepted(name):
    frame = VALID[name]
    packet = read_by_both(frame)
    assert packet.refused == bool(frame.flags & REFUSED)
    assert packet.fresh == bool(frame.flags & FRESH)
    assert packet.ack == frame.ack - 1
    assert (packet.vector is None) == (frame.kind == EMPTY)


def test_refused_excludes_double():
    assert_both_refuse(RawFrame(flags=REFUSED | DOUBLE))


# ---- the two stages of a reader ----

FIXED_FRAME = fixed(3, 1.0, 0.5, bits=2)
CODED_FRAME = VALID["coded, step -0"]
DITHERED_FRAME = dithered([0, 1, -1])
RELAYED_FRAME = relayed(relayed_round(7, 1.0, (1.0, dense(1.0))))
STAGE_1 = {
    "unknown version": RawFrame(version=4),
    "scalar cut off": replace(DITHERED_FRAME, count=1),
    "fixed, refused": replace(FIXED_FRAME, flags=REFUSED),
    "coded, refused": replace(CODED_FRAME, flags=REFUSED),
    "dithered, refused": replace(DITHERED_FRAME, flags=REFUSED),
    "coded, above the limit": replace(CODED_FRAME, dimension=2**28 + 1),
    "dithered, above the limit": replace(DITHERED_FRAME, dimension=2**28 + 1),
    "dense, too short": RawFrame(kind=DENSE, dimension=2**28, body=floats(1.0)),
    "fixed, too short": replace(FIXED_FRAME, dimension=2**28),
    "fixed, bucket of the whole vector": replace(FIXED_FRAME, bucket=1),
    "fixed, negative step": fixed(3, 1.0, -0.5, bits=2),
    "coded, too short for its grids": replace(CODED_FRAME, dimension=2**28, bucket=1),
    "coded, low is NaN": replace(CODED_FRAME, body=floats(math.nan) + CODED_FRAME.body[4:]),
    "dithered, step is infinite": dithered([0], step=math.inf),
    "dithered, 1 bit": replace(DITHERED_FRAME, bits=1),
    "dithered, bucket": replace(DITHERED_FRAME, bucket=1),
    "dithered, seed cut off": replace(DITHERED_FRAME, body=DITHERED_FRAME.body[:7]),
    "relayed, refused": replace(RELAYED_FRAME, flags=REFUSED),
    "relayed, bucket": replace(RELAYED_FRAME, bucket=1),
    "relayed, too many replies": relayed(relayed_round(7, 1.0, count=2**32 - 1)),
    "relayed, reply too long": relayed(
        relayed_round(7, 1.0, count=1), frame_builder.relayed_reply(1.0, b"", length=2**32 - 1)
    ),
}


@pytest.mark.parametrize("name", STAGE_1)
def test_header_rule_is_checked_before_memory_is_allocated(name, monkeypatch):
    def fail(*_):
        pytest.fail("allocated memory for an invalid header")

    monkeypatch.setattr(wire, "_host_tensor", fail)
    assert_both_refuse(STAGE_1[name])


def test_unexpected_dimension_is_refused_before_memory_is_allocated(monkeypatch):
    monkeypatch.setattr(wire, "_host_tensor", None)
    for frame in (FIXED_FRAME, CODED_FRAME, DITHERED_FRAME, RELAYED_FRAME):
        with pytest.raises(WireError, match="are expected"):
            unpack(frame.bytes(), frame.dimension + 1)


def test_frame_without_a_vector_has_no_expected_dimension():
    for frame in (RawFrame(), RawFrame(flags=REFUSED)):
        assert unpack(frame.bytes(), 5).vector is None
        assert frame_reader.read(frame.bytes(), 5).values == []


def test_expected_dimension_replaces_the_limit(monkeypatch):
    monkeypatch.setattr(envelope, "UNCHECKED_DIMENSION_LIMIT", 2)
    monkeypatch.setattr(frame_reader, "LIMIT", 2)
    for frame in (CODED_FRAME, DITHERED_FRAME):
        assert_both_refuse(frame)
        codes = unpack(frame.bytes(), frame.dimension).vector.codes.tolist()
        assert codes == frame_reader.read(frame.bytes(), frame.dimension).codes


# ---- segments of coded bodies ----


def coded(*segments, dimension, bits=3):
    body = floats(0.0, 1.0) + b"".join(segments)
    return RawFrame(kind=CODED, bits=bits, dimension=dimension, body=body)


def test_distances_from_the_centre_wrap_around():
    zigzags = list(range(8))
    for centre, codes in {
        0: [0, 7, 1, 6, 2, 5, 3, 4],
        6: [6, 5, 7, 4, 0, 3, 1, 2],
    }.items():
        frame = coded(frame_builder.zigzag(centre, zigzags), dimension=8)
        assert read_by_both(frame).vector.codes.tolist() == codes


@pytest.mark.parametrize(("bits", "below"), [(1, 1), (3, 7), (12, 4095)])
def test_code_below_a_centre_of_zero_is_the_largest_one(bits, below):
    signs = [0, 1, 1, 0, 1, 0, 0, 1, 1]
    frame = coded(frame_builder.signed_exceptions(signs, 0), dimension=9, bits=bits)
    assert read_by_both(frame).vector.codes.tolist() == [sign * below for sign in signs]


def test_signed_exceptions_have_sign_bits_too():
    signs = [0, 1, 0, 1]
    frame = coded(frame_builder.signed_exceptions(signs, 3, [0, 2], [1, 1]), dimension=4)
    assert read_by_both(frame).vector.codes.tolist() == [5, 2, 3, 0]


@pytest.mark.parametrize("mode", range(5))
def test_every_segment_has_a_code(mode):
    empty = frame_builder.segment(mode, 0, b"\x03" * (mode > 1) + b"\0" * (mode > 2))
    codes = frame_builder.packed_segment([1, 2, 3], 3)
    assert read_by_both(coded(codes, dimension=3)).vector.codes.tolist() == [1, 2, 3]
    for segments in ((empty, codes), (codes, empty)):
        assert_both_refuse(coded(*segments, dimension=3))


def test_numbers_from_16_on_have_extra_bits():
    smallest = {16: 16, 17: 20, 19: 28, 20: 32, 127: 7 * 2**29}
    for symbol, number in smallest.items():
        e = symbol // 4 - 2
        for x in (0, 2**e - 1):
            extra = frame_builder.bit_string([(x, e)])
            content = b"\0" + frame_builder.stream([symbol]).bytes() + extra
            frame = coded(frame_builder.segment(2, 1, content), dimension=1, bits=32)
            (code,) = read_by_both(frame).vector.codes.tolist()
            u = number + x
            assert code == (u // 2 if u % 2 == 0 else 2**32 - (u + 1) // 2)


# ---- decisions of dithered bodies ----


def test_gap_counts_ranks_without_a_coordinate():
    places = frame_builder.Blocks(SEED, 8).places(0)
    ranks = [places.index(i) for i in range(8)]
    distances = [0] * 8
    first, last = ranks.index(min(ranks)), ranks.index(max(ranks))
    distances[last] = -2
    listed = [(max(ranks) - min(ranks), -2)]  # from the first rank with a coordinate
    body = floats(0.5) + frame_builder.dithered([0] * 8, SEED, 255, listed)
    frame = RawFrame(kind=DITHERED, bits=3, dimension=8, body=body)
    assert codes_of(frame) == distances
    assert ranks[last] - ranks[first] > 7


def test_complement_of_zero_counts_as_one():
    seed = 0
    assert frame_builder.dither_word(0, seed) == 0
    assert frame_builder.Blocks(seed, 48).complement(0) == 0
    coordinate = frame_builder.Blocks(seed, 48).places(0)[0]
    assert coordinate < 48
    distances = [0] * 48
    distances[coordinate] = -2
    for sparsity in (0, 225, 255):
        body = floats(0.5) + frame_builder.dithered(distances, seed, sparsity)
        frame = RawFrame(kind=DITHERED, bits=3, dimension=len(distances), body=body)
        assert codes_of(frame) == distances


# ---- range coder of dithered bodies ----


def decisions_of(distances, sparsity=0):
    return frame_builder.encode_decisions(distances, SEED, sparsity)


def codes_of(frame):
    return (read_by_both(frame).vector.codes.int() - 3).tolist()


@pytest.mark.parametrize(
    ("distances", "seed", "stream"),
    [
        ([2, 1], 45, "80"),
        ([2, -1], 12, "10"),
        ([2, 1, -1, 0, 0, 0, 0], 4, "9c84"),
        ([0, 2, -1, 0, 0, -1, -1, 2, 2, 1, 1, -1], 32, "e7afac67"),
    ],
)
def test_final_number_of_the_stream_may_reach_2_to_the_32(distances, seed, stream):
    sparsity = frame_builder.sparsity_of(distances)
    encoder = frame_builder.encode_decisions(distances, seed, sparsity)
    carry = -(-encoder.low // 2**32) * 2**32  # four zero bytes at its end
    assert encoder.low < carry < encoder.low + encoder.range
    assert encoder.bytes() == bytes.fromhex(stream)
    body = floats(0.5) + frame_builder.dithered(distances, seed)
    frame = RawFrame(kind=DITHERED, bits=3, dimension=len(distances), body=body)
    assert codes_of(frame) == distances
    assert pack(unpack(frame.bytes())) == frame.bytes()


def test_a_writer_may_choose_any_final_number():
    distances = [0, 1, -1, 0, 2]
    encoder = decisions_of(distances)
    for x in (0, 1, encoder.range // 3, encoder.range // 2, encoder.range - 1):
        stream = (encoder.low + x).to_bytes(encoder.bytes_read, "big").rstrip(b"\0")
        assert codes_of(dithered(distances, sparsity=0, stream=stream)) == distances
    for x in (-1, encoder.range):
        stream = (encoder.low + x).to_bytes(encoder.bytes_read, "big").rstrip(b"\0")
        frame = dithered(distances, sparsity=0, stream=stream).bytes()
        try:
            other = frame_reader.read(frame).codes
        except frame_reader.FrameError:
            other = None
        assert other != [code + 3 for code in distances]


def test_a_writer_may_choose_any_sparsity():
    distances = [0, 1, -1, 0, 2, 0, 0, 4, -3, 0]
    for sparsity in range(256):
        assert codes_of(dithered(distances, sparsity=sparsity)) == distances


def test_stream_may_be_shorter_than_the_reader_consumes_but_not_longer():
    distances = [0, 1, -1, 0, 2]
    encoder = decisions_of(distances)
    consumed, stream = encoder.bytes_read, encoder.bytes()
    assert len(stream) < consumed
    assert codes_of(dithered(distances, sparsity=0, stream=stream)) == distances
    longest = stream.ljust(consumed - 1, b"\0") + b"\1"
    assert codes_of(dithered(distances, sparsity=0, stream=longest)) == distances
    for invalid in (stream + b"\0", stream.ljust(consumed, b"\0"), longest + b"\1"):
        assert_both_refuse(dithered(distances, sparsity=0, stream=invalid))


@pytest.mark.parametrize("sparsity", [0, 255])
def test_stream_may_be_empty_if_all_coordinates_are_minus_one_step(sparsity):
    distances = [-1] * 64
    assert codes_of(dithered(distances, sparsity=sparsity, stream=b"")) == distances
    assert decisions_of(distances, sparsity).bytes() == b""


def test_documented_table_of_levels_is_the_one_in_use():
    page = (DOCS / "wire-format-levels.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    levels, initial, rise, fall = zip(*(map(int, row) for row in rows), strict=True)
    assert levels == tuple(range(21))
    assert (list(initial), list(rise), list(fall)) == (INITIAL, RISE, FALL)


# ---- checksums ----


def test_checksum_of_an_order_is_the_crc_of_two_checksums():
    control, model = pack(Packet(3, scalars={"drift": 0.5})), pack(Packet(4))
    assert checksum_of_order(control, model) == crc32(control[-4:] + model[-4:])
    assert checksum_of_order(control, model) != checksum_of_order(model, control)


def test_checksum_of_a_vector_is_the_crc_of_a_dense_body():
    for dtype in (torch.float32, torch.float64):
        vector = torch.tensor([1.5, -0.0, 3.0], dtype=dtype)
        frame = parse(pack(Packet(0, Dense(vector))))
        assert frame.kind is Kind.DENSE
        assert wire.checksum_of_vector(vector) == crc32(frame.body)
