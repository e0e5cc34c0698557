"""Valid and invalid frames of every kind and mode, and functions that damage them."""

import math
import random
from dataclasses import replace

import torch

from aquila.core.packet import Codes, Dense, Packet, RelayedRound, RelayedUploads, code_dtype
from aquila.core.wire import pack
from helpers import frame_builder, frame_reader

EDGE_CASES = [0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 64, 127, 128, 255]
EDGE_CASES_LONG = [*EDGE_CASES, 256, 2**15, 2**16, 2**28, 2**28 + 1, 2**31 - 1, 2**31, 2**32 - 1]
HEADER_FIELDS = {
    "kind": (range(8), 8),
    "flags": (range(8), 8),
    "bits": (EDGE_CASES, 256),
    "count": (EDGE_CASES, 256),
    **dict.fromkeys(("round", "ack", "refers_to", "dimension", "bucket"), (EDGE_CASES_LONG, 2**32)),
}
EDGE_CASE_STEPS = [math.nan, math.inf, -math.inf, -0.5, -0.0, 1e38, 2e38, 3.4e38]
EDGE_CASE_FACTORS = [0.0, -0.0, 1.0, 5e-324, -1.7e308]
HEADER, CHECKSUM = 2, 4  # the round may follow in the first byte after it
POOL, FRAMES_PER_POOL = 1500, 25_000


# ---- valid frames ----


def any_codes(rng, d, bits):
    centre, top = rng.randrange(2**bits), 2**bits - 1
    shape = rng.randrange(5)
    if shape == 0:
        return [centre] * d, centre
    if shape == 1:
        return [rng.randint(0, top) for _ in range(d)], centre
    spread = 2 ** rng.uniform(-2, min(bits, 8) - 1)
    if shape == 2:
        return [(centre + round(rng.gauss(0, spread))) % 2**bits for _ in range(d)], centre
    codes = [(centre - rng.randint(0, shape - 3)) % 2**bits for _ in range(d)]
    for _ in range(d // 10):
        codes[rng.randrange(d)] = rng.randint(0, top)
    return codes, centre


def any_width(rng):
    return rng.choice([rng.randint(1, 8), rng.randint(1, 8), rng.randint(9, 32)])


def any_dimension(rng):
    if rng.random() < 0.93:
        return rng.randint(1, 40)
    return rng.choice([255, 256, 257, rng.randint(41, 600)])


def any_modes(bits):
    return [mode for mode in range(5) if mode != frame_builder.DIRECT or bits <= 8]


def any_scalars(rng):
    names = rng.sample([b"loss", b"drift", b"_", b"a" * 32], rng.choice([0, 0, 0, 1, 2]))
    return len(names), b"".join(frame_builder.scalar(name, rng.gauss(0, 1)) for name in names)


def any_grids(rng, d):
    """Return the bucket, the flags and the bytes of the grids."""
    bucket = rng.randint(1, d - 1) if d > 1 and rng.random() < 0.2 else 0
    grids = -(-d // bucket) if bucket else 1
    low = [rng.gauss(0, 1) for _ in range(grids)]
    step = [rng.choice([0.0, rng.random()]) for _ in range(grids)]
    if rng.random() < 0.3:
        return bucket, frame_builder.DOUBLE, frame_builder.doubles(*low, *step)
    return bucket, 0, frame_builder.floats(*low, *step)


def segment_lengths(rng, d):
    """Return the lengths of one or more segments of d codes."""
    cuts = sorted({rng.randrange(d) for _ in range(rng.choice([0, 0, 1, 3]))} - {0})
    return [end - start for start, end in zip([0, *cuts], [*cuts, d], strict=True)]


def segment_of(rng, n, bits):
    codes, centre = any_codes(rng, n, bits)
    return frame_builder.segment_in_mode(rng.choice(any_modes(bits)), codes, bits, centre)


def coded_frame(rng, one_segment=segment_of):
    bits, d = any_width(rng), any_dimension(rng)
    bucket, flags, grids = any_grids(rng, d)
    count, scalars = any_scalars(rng)
    lengths = segment_lengths(rng, d)
    special = rng.randrange(len(lengths))
    segments = [
        (one_segment if i == special else segment_of)(rng, n, bits) for i, n in enumerate(lengths)
    ]
    return frame_builder.RawFrame(
        kind=frame_builder.CODED, flags=flags, bits=bits, round=rng.getrandbits(32), dimension=d,
        bucket=bucket, count=count, scalars=scalars, body=grids + b"".join(segments),
    ).bytes()  # fmt: skip


def centre_of(bits):
    return 2 ** (bits - 1) - 1


def any_distances(rng, d, bits):
    """Return the distances of codes from the centre; most are 0."""
    centre, density = centre_of(bits), rng.choice([0, 0.01, 0.1, 0.1, 1])
    sizes = [1, -1, 1, -1, centre + 1, -centre, rng.randint(-centre, centre + 1)]
    return [rng.choice(sizes) if rng.random() < density else 0 for _ in range(d)]


def valid_dithered(rng, d, bits):
    sparsity = rng.choice([None, rng.randint(0, 60), rng.randint(0, 255)])
    return frame_builder.dithered(any_distances(rng, d, bits), rng.getrandbits(32), sparsity)


def dithered_frame(rng, content=valid_dithered):
    bits, d = max(any_width(rng), 2), any_dimension(rng)
    step = rng.choice([0.0, rng.random()] if rng.random() < 0.95 else EDGE_CASE_STEPS)
    count, scalars = any_scalars(rng)
    flags, step = rng.choice(
        [(0, frame_builder.floats(step)), (frame_builder.DOUBLE, frame_builder.doubles(step))]
    )
    return frame_builder.RawFrame(
        kind=frame_builder.DITHERED, flags=flags, bits=bits, round=rng.getrandbits(32), dimension=d,
        count=count, scalars=scalars, body=step + content(rng, d, bits),
    ).bytes()  # fmt: skip


def dithered_codes(rng, d, bits, dtype):
    """Return codes with the seed of a dither, as methods create them."""
    step = torch.rand(1, dtype=dtype)
    low = -(step * torch.tensor(centre_of(bits), dtype=dtype))
    codes = [centre_of(bits) + distance for distance in any_distances(rng, d, bits)]
    codes = torch.tensor(codes, dtype=code_dtype(bits))
    return Codes(codes, bits, low, step, d, dither_seed=rng.getrandbits(32))


def written_frame(rng):
    """Return a frame written by `pack`."""
    d, bits = any_dimension(rng), any_width(rng)
    dtype = rng.choice([torch.float32, torch.float64])
    scalars = {"loss": rng.gauss(0, 1)} if rng.random() < 0.3 else {}
    kind = rng.randrange(8)
    if kind == 7:
        rounds = tuple(written_round(rng) for _ in range(rng.choice([1, 1, 2])))
        vector = RelayedUploads(d, dtype, rounds)
        return pack(Packet(rng.getrandbits(32), vector, scalars, refers_to=rounds[0].base))
    if kind == 0:
        refused, fresh, refers_to = rng.random() < 0.3, rng.random() < 0.3, rng.getrandbits(32)
        return pack(Packet(rng.getrandbits(32), None, scalars, 2, refused, refers_to, fresh))
    if kind == 1:
        values = torch.tensor([rng.gauss(0, 1) for _ in range(d)], dtype=dtype)
        return pack(Packet(rng.getrandbits(32), Dense(values), scalars))
    if kind == 3:
        vector = dithered_codes(rng, d, max(bits, 2), dtype)
        return pack(Packet(rng.getrandbits(32), vector, scalars))
    if kind == 2 and rng.random() < 0.05:
        d = rng.randint(9000, 40_000)  # long enough for several segments
    codes, _ = any_codes(rng, d, bits)
    bucket = rng.randint(1, d) if rng.random() < 0.2 else d
    low = torch.randn(-(-d // bucket), dtype=dtype)
    step = torch.rand(-(-d // bucket), dtype=dtype)
    codes = torch.tensor(codes, dtype=code_dtype(bits))
    return pack(Packet(rng.getrandbits(32), Codes(codes, bits, low, step, bucket), scalars))


def written_round(rng):
    frames = tuple(upload_frame(rng) for _ in range(rng.randrange(3)))
    weights = tuple(any_factor(rng) for _ in frames)
    return RelayedRound(any_base(rng), any_factor(rng), weights, frames)


def any_factor(rng):
    return rng.choice([rng.gauss(0, 1), rng.gauss(0, 1), rng.choice(EDGE_CASE_FACTORS)])


def any_base(rng):
    return rng.choice([1, 2**32 - 1, rng.randint(1, 2**32 - 1)])


def upload_frame(rng):
    """Return the frame of a reply with an upload."""
    return rng.choice([coded_frame, dithered_frame, dense_frame])(rng)


def dense_frame(rng):
    values = torch.tensor([rng.gauss(0, 1) for _ in range(rng.randint(0, 9))])
    return pack(Packet(rng.getrandbits(32), Dense(values), refers_to=rng.getrandbits(32)))


def relayed_frame(rng, reply=upload_frame, factor=any_factor, base=any_base):
    rounds = [
        frame_builder.relayed_round(
            base(rng), factor(rng), *[(factor(rng), reply(rng)) for _ in range(rng.randrange(3))]
        )
        for _ in range(rng.choice([1, 1, 2, 3]))
    ]
    count, scalars = any_scalars(rng)
    return frame_builder.RawFrame(
        kind=frame_builder.RELAYED, flags=rng.choice([0, frame_builder.DOUBLE]),
        round=rng.getrandbits(32), refers_to=rng.choice([0, 1]), dimension=any_dimension(rng),
        count=count, scalars=scalars, body=b"".join(rounds),
    ).bytes()  # fmt: skip


# ---- invalid frames that random damage would rarely produce ----


def invalid_segment(rng, n, bits):
    return rng.choice(INVALID_SEGMENT_MAKERS)(rng, n, bits)


def any_number(rng, most):
    wrong = [most, most + 1, 2 * most, 2**32 - 1]
    return min(rng.choice([rng.randrange(most), 0, most - 1, rng.choice(wrong)]), 2**32 - 1)


def centre_anywhere(rng, n, bits):
    numbers = [rng.randrange(min(2**bits, 5)) for _ in range(n)]
    return frame_builder.zigzag(any_number(rng, 2**bits), numbers)


def zigzag_numbers_anywhere(rng, n, bits):
    return frame_builder.zigzag(
        rng.randrange(2**bits), [any_number(rng, 2**bits) for _ in range(n)]
    )


def exceptions_anywhere(rng, n, bits):
    m = rng.choice([1, n, n + 1, rng.randint(1, n)])
    gaps = [rng.choice([0, 0, 1, any_number(rng, n)]) for _ in range(m)]
    most = rng.choice([2**bits, max(2 ** (bits - 1), 1)])
    values = [any_number(rng, most) for _ in range(m)]
    centre = rng.randrange(2**bits)
    if rng.random() < 0.5:
        return frame_builder.exceptions(n, centre, gaps, values)
    return frame_builder.signed_exceptions(
        [rng.randint(0, 1) for _ in range(n)], centre, gaps, values
    )


def symbols_anywhere(rng, n, bits):
    top = rng.choice([2 ** min(bits, 8), 128, 129, 256])
    stream = frame_builder.stream([rng.randrange(top) for _ in range(n)]).bytes()
    if rng.random() < 0.5:
        return frame_builder.segment(frame_builder.DIRECT, n, stream)
    return frame_builder.segment(
        frame_builder.ZIGZAG, n, frame_builder.varint(0) + stream + rng.randbytes(rng.randrange(4))
    )


def stream_broken(rng, n, bits):
    stream = frame_builder.stream([rng.randrange(2 ** min(bits, 8)) for _ in range(n)])
    frequencies, states, words = list(stream.frequencies), list(stream.states), list(stream.words)
    part = rng.randrange(4)
    if part == 0:
        frequencies[rng.randrange(len(frequencies))] = rng.choice([0, 1, 4095, 4096, 4097, 8190])
    elif part == 1:
        states[rng.randrange(len(states))] = rng.choice([0, 2**15 - 1, 2**15, 2**31 - 1, 2**31])
    elif part == 2:
        words.insert(rng.randint(0, len(words)), rng.getrandbits(16))
    else:
        words = words[: rng.randint(0, len(words))]
    broken = replace(stream, frequencies=frequencies, states=states, words=words)
    return frame_builder.segment(frame_builder.DIRECT, n, broken.bytes())


def length_anywhere(rng, n, bits):
    valid = segment_of(rng, n, bits)
    mode, rest = valid[:1], valid[1 + len(frame_builder.varint(n)) :]
    return mode + frame_builder.varint(any_number(rng, n + 1)) + rest


INVALID_SEGMENT_MAKERS = [
    centre_anywhere, zigzag_numbers_anywhere, exceptions_anywhere, exceptions_anywhere,
    symbols_anywhere, stream_broken, length_anywhere,
]  # fmt: skip


def invalid_dithered(rng, d, bits):
    return rng.choice(INVALID_DITHERED_MAKERS)(rng, d, bits)


def listed_anywhere(rng, d, bits):
    """List ranks after the end of their block, or ones without a coordinate."""
    gaps = [rng.choice([0, 0, 1, any_number(rng, 2 * d)]) for _ in range(rng.randint(1, 4))]
    listed = [(gap, rng.choice([-1, 1])) for gap in gaps]
    distances = any_distances(rng, d, bits)
    return frame_builder.dithered(distances, rng.getrandbits(32), rng.randint(0, 255), listed)


def distances_anywhere(rng, d, bits):
    distances = any_distances(rng, d, bits)
    most = rng.choice([centre_of(bits), centre_of(bits) + 1])
    distances[rng.randrange(d)] = rng.choice([-1, 1]) * (any_number(rng, most) + 1)
    return frame_builder.dithered(
        distances, rng.getrandbits(32), rng.choice([None, rng.randint(0, 255)])
    )


def stream_anywhere(rng, d, bits):
    seed, sparsity = rng.getrandbits(32), rng.randint(0, 255)
    distances = any_distances(rng, d, bits)
    decisions = frame_builder.encode_decisions(distances, seed, sparsity)
    whole = decisions.bytes().ljust(decisions.bytes_read, b"\0")
    streams = [
        whole, whole[:-1] + b"\1", whole + b"\1", b"\xff" * 4, b"\xff" * 3 + b"\xfe",
        rng.randbytes(rng.randrange(d + 4)), whole.rstrip(b"\0") + rng.randbytes(2),
    ]  # fmt: skip
    return frame_builder.dithered(distances, seed, sparsity, stream=rng.choice(streams))


INVALID_DITHERED_MAKERS = [
    listed_anywhere, distances_anywhere, stream_anywhere, stream_anywhere,
]  # fmt: skip


def invalid_reply(rng):
    """Return the frame of a reply that is damaged, or has no upload."""
    frame = upload_frame(rng)
    damaged = rng.choice(DAMAGE)(rng, frame, upload_frame(rng))
    without_upload = frame_builder.RawFrame(round=rng.getrandbits(32)).bytes()
    return rng.choice(
        [
            damaged, *[frame_builder.with_crc(damaged[:-CHECKSUM])] * 5, without_upload, b"",
            relayed_frame(rng, dense_frame),
        ]
    )  # fmt: skip


def invalid_relayed(rng):
    """Return a relayed frame of which one part may be invalid."""
    part = rng.randrange(4)
    if part == 0:
        return relayed_frame(rng, factor=lambda rng: rng.choice([1.0, 1.0, math.nan, -math.inf]))
    if part == 1:
        return relayed_frame(rng, base=lambda rng: rng.choice([1, 0]))
    return relayed_frame(rng, invalid_reply)


# ---- damage ----


def raw_header(frame):
    """Return the fields of a frame whose header is valid; scalars stay in front of the body."""
    source = frame_reader.Source(frame[1:-CHECKSUM])
    kind, flags, refers, more = (source.bits(n) for n in (3, 3, 1, 1))
    round_, refers_to = source.varint(), source.bits(32) if refers else 0
    dimension = source.varint() if kind else 0
    has_bits = kind in (frame_builder.FIXED, frame_builder.CODED, frame_builder.DITHERED)
    bits = source.byte() if has_bits else 0
    ack, bucket, count = (source.varint(), source.varint(), source.byte()) if more else (0, 0, 0)
    return frame_builder.RawFrame(
        kind=kind, flags=flags, bits=bits, round=round_, ack=ack, refers_to=refers_to,
        dimension=dimension, bucket=bucket, count=count, body=source.rest(),
    )  # fmt: skip


def unchanged(rng, frame, other):
    return frame


def flip_bits(rng, frame, other):
    edited = bytearray(frame)
    for _ in range(rng.choice([1, 1, 2, 4])):
        edited[rng.randrange(HEADER, len(edited))] ^= 1 << rng.randrange(8)
    return bytes(edited)


def edit_bytes(rng, frame, other):
    edited = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        edited[rng.randrange(1, len(edited))] = rng.choice([rng.randrange(256), 0, 128, 255])
    return bytes(edited)


def edit_header(rng, frame, other):
    raw = raw_header(frame)
    for field in rng.sample(list(HEADER_FIELDS), rng.randint(1, 2)):
        edge_values, limit = HEADER_FIELDS[field]
        before = getattr(raw, field)
        number = rng.choice([rng.choice(edge_values), before + 1, max(before, 1) - 1])
        raw = replace(raw, **{field: number % limit})
    return raw.bytes()


def edit_varint(rng, frame, other):
    at = rng.randrange(HEADER, len(frame))
    number = frame_builder.varint(rng.choice(EDGE_CASES_LONG))
    if rng.random() < 0.3:
        number = number[:-1] + bytes([number[-1] | 128]) + b"\x00"  # longer than necessary
    return frame[:at] + number + frame[at + rng.choice([0, 1, 1, len(number)]) :]


def truncate(rng, frame, other):
    return frame[: rng.randrange(HEADER, len(frame))]


def extend(rng, frame, other):
    at = rng.randrange(HEADER, len(frame))
    return frame[:at] + rng.randbytes(rng.randint(1, 12)) + frame[at:]


def delete(rng, frame, other):
    at = rng.randrange(HEADER, len(frame))
    return frame[:at] + frame[at + rng.randint(1, 8) :]


def splice(rng, frame, other):
    return frame[: rng.randrange(1, len(frame))] + other[rng.randrange(1, len(other)) :]


def header_of_other(rng, frame, other):
    raw = raw_header(frame)
    return replace(raw_header(other), body=raw.body, count=raw.count).bytes()


def kind_of_other(rng, frame, other):
    return replace(raw_header(frame), kind=rng.choice([2, 3, 4, 5])).bytes()


DAMAGE = [
    unchanged, flip_bits, flip_bits, edit_bytes, edit_header, edit_varint, edit_varint, truncate,
    extend, delete, splice, header_of_other, kind_of_other,
]  # fmt: skip


def make_pool(rng):
    """Return valid and invalid frames."""
    torch.manual_seed(rng.getrandbits(32))
    makers = [
        written_frame, written_frame, coded_frame, coded_frame,
        lambda r: coded_frame(r, invalid_segment), dithered_frame,
        lambda r: dithered_frame(r, invalid_dithered),
        lambda r: r.choice([relayed_frame, invalid_relayed])(r),
    ]  # fmt: skip
    return [rng.choice(makers)(rng) for _ in range(POOL)]


def mutated_frames(seed, count):
    """Yield damaged frames, each with the dimension of its original."""
    for number in range(count):
        if number % FRAMES_PER_POOL == 0:
            rng = random.Random(f"{seed} {number}")
            pool = make_pool(rng)
        frame = rng.choice(pool)
        damaged = rng.choice(DAMAGE)(rng, frame, rng.choice(pool))
        if rng.random() < 0.98:  # readers refuse nearly all frames with a wrong checksum
            damaged = frame_builder.with_crc(damaged[:-CHECKSUM])
        yield damaged, raw_header(frame).dimension
