"""Frames damaged at random: nothing but WireError comes out, and memory stays in proportion.

Every other frame gets a valid checksum, so that it reaches the decoders behind it.
"""

import contextlib
import random
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aquila.core.packet import Codes, Dense, Packet, WireError, code_dtype
from aquila.core.wire import pack, unpack

FRAMES_A_SEED = 30_000
CHECKSUM = 4
HEADER_FIELDS = [(4, 1), (5, 1), (6, 1), (7, 1), (8, 4), (12, 4), (16, 4), (20, 4), (24, 1)]
TEMPTING = [0, 1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 64, 127, 128, 255]
TEMPTING_LONG = [*TEMPTING, 2**16, 2**29, 2**30, 2**31 - 1, 2**31, 2**32 - 1]


def codes(dimension, bits, bucket=None, dtype=torch.float32):
    rng = np.random.default_rng((dimension, bits))
    bucket = bucket or dimension
    grids = -(-dimension // bucket)
    numbers = torch.from_numpy(rng.integers(0, 2**bits, dimension)).to(code_dtype(bits))
    low = -torch.from_numpy(rng.random(grids)).to(dtype)
    step = torch.from_numpy(rng.random(grids)).to(dtype)
    return Codes(numbers, bits, low, step, bucket)


def sound_frames():
    vectors = [
        None,
        Dense(torch.linspace(-1, 1, 5)),
        Dense(torch.linspace(-1, 1, 3, dtype=torch.float64)),
        codes(11, 1),
        codes(5, 6),
        codes(7, 13, dtype=torch.float64),
        codes(3, 32),
        codes(10, 3, bucket=4),
        codes(9, 8, bucket=1),
    ]
    packets = [Packet(7, vector) for vector in vectors]
    packets += [Packet(7, vector, {"loss": 0.5, "drift": 2.0}, ack=6) for vector in vectors]
    return [pack(packet) for packet in [*packets, Packet(7, refused=True)]]


def sealed(content):
    return content + struct.pack("<I", zlib.crc32(content))


def edit_bytes(rng, frame, _):
    edited = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        edited[rng.randrange(len(edited))] = rng.choice([rng.randrange(256), 0, 255])
    return bytes(edited)


def edit_behind_magic(rng, frame, _):
    edited = bytearray(frame)
    edited[rng.randrange(5, len(edited))] ^= 1 << rng.randrange(8)
    return bytes(edited)


def edit_header(rng, frame, _):
    edited = bytearray(frame)
    for offset, width in rng.sample(HEADER_FIELDS, rng.randint(1, 3)):
        number = rng.choice(
            [rng.randrange(256**width), *(TEMPTING_LONG if width > 1 else TEMPTING)]
        )
        edited[offset : offset + width] = number.to_bytes(width, "little")
    return bytes(edited)


def truncate(rng, frame, _):
    return frame[: rng.randrange(len(frame))]


def extend(rng, frame, _):
    at = rng.randrange(len(frame))
    return frame[:at] + rng.randbytes(rng.randint(1, 12)) + frame[at:]


def splice(rng, frame, other):
    return frame[: rng.randrange(len(frame))] + other[rng.randrange(len(other)) :]


def keep_header_of_other(rng, frame, other):
    return other[:25] + frame[25:]


MUTATIONS = [
    edit_bytes, edit_behind_magic, edit_header, truncate, extend, splice, keep_header_of_other,
]  # fmt: skip


def mutants(seed, count):
    rng, sound = random.Random(seed), sound_frames()
    for number in range(count):
        mutate = MUTATIONS[number // 2 % len(MUTATIONS)]
        mutant = mutate(rng, rng.choice(sound), rng.choice(sound))
        yield sealed(mutant[:-CHECKSUM]) if number % 2 else mutant


def refused(frame):
    """Whether a frame is refused; one that is read must be sound to the last bit."""
    try:
        packet = unpack(frame)
    except WireError:
        return True
    if packet.vector is not None:
        assert torch.isfinite(packet.vector.decode()).all()
    assert pack(packet) == frame
    return False


@pytest.mark.parametrize("seed", range(7))
def test_mutants_are_refused_or_sound(seed):
    results = [refused(mutant) for mutant in mutants(seed, FRAMES_A_SEED)]
    # both ways must have been taken, or the loop tests nothing
    assert FRAMES_A_SEED / 2 < sum(results) < FRAMES_A_SEED


@settings(deadline=None, derandomize=True, max_examples=500)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data):
    assert refused(data)


@settings(deadline=None, derandomize=True, max_examples=500)
@given(
    st.sampled_from([0, 1, 2]), st.integers(0, 3), st.integers(0, 65),
    st.integers(0, 12), st.integers(0, 5), st.integers(0, 2), st.binary(max_size=80),
)  # fmt: skip
def test_random_bodies_behind_likely_headers_are_refused_or_sound(
    kind, flags, bits, dimension, bucket, scalars, body
):
    header = struct.pack(
        "<4s4B4IB", b"AQLA", 1, kind, flags, bits, 1, 0, dimension, bucket, scalars
    )
    refused(sealed(header + body))


def peak_of(frame):
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    with contextlib.suppress(WireError):
        unpack(frame)
    return tracemalloc.get_traced_memory()[1] - before


def long_frames():
    vectors = [
        Dense(torch.linspace(-1, 1, 50_000)),
        codes(1_600_000, 1),
        codes(200_000, 9),
        codes(50_000, 32),
        codes(20_000, 1, bucket=1),
    ]
    frames = [pack(Packet(1, vector)) for vector in vectors]
    return [*frames, pack(Packet(1, None, {f"s{i}": 1.0 for i in range(255)}))]


@pytest.fixture
def traced():
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_memory_stays_in_proportion_to_the_frame():
    lying = []
    for frame in long_frames():
        for dimension in (2**31, 2**32 - 1):
            content = bytearray(frame[:-CHECKSUM])
            content[16:20] = dimension.to_bytes(4, "little")
            lying.append(sealed(bytes(content)))
    for frame in [*long_frames(), *lying, *mutants(seed=99, count=3000)]:
        assert peak_of(frame) < 64 * len(frame) + 2**20
