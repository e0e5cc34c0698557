"""Frames damaged at random: only WireError comes out, and claims alone take no memory.

Every other frame gets a valid checksum, so that it reaches the decoders behind it.
"""

import pickle
import random
import struct
import subprocess
import sys
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

# tensors take their memory past Python's own count, so the system is asked
DECODE = """
import contextlib, pickle, resource, sys
import torch
from aquila.core.packet import Dense, Packet, WireError
from aquila.core.wire import pack, unpack

frames = pickle.load(open(sys.argv[1], "rb"))
unpack(pack(Packet(0, Dense(torch.ones(1000)))))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for frame in frames:
    with contextlib.suppress(WireError):
        unpack(frame)
torch.ones(int(sys.argv[2]), dtype=torch.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
needs_peak = pytest.mark.skipif(
    sys.platform == "win32", reason="the peak is asked of a POSIX system"
)


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


def lying_frames():
    """Frames with a sound checksum that claim far more coordinates, or buckets, than they hold."""
    for frame in [*sound_frames(), *long_frames()]:
        for dimension in (2**28, 2**31, 2**32 - 1):
            content = bytearray(frame[:-CHECKSUM])
            content[16:20] = dimension.to_bytes(4, "little")
            yield sealed(bytes(content))
            content[20:24] = (1).to_bytes(4, "little")
            yield sealed(bytes(content))


def growth_in_a_new_process(tmp_path, frames, extra=0):
    """Megabytes by which the peak resident set grows over these frames and `extra` bytes."""
    (tmp_path / "frames").write_bytes(pickle.dumps(list(frames)))
    command = [sys.executable, "-c", DECODE, str(tmp_path / "frames"), str(extra)]
    # through a shell, since a process starts with the peak of the one that started it
    shell = ["sh", "-c", '"$@"; exit $?', "sh", *command]
    done = subprocess.run(shell, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout) / (2**20 if sys.platform == "darwin" else 2**10)


@needs_peak
def test_decoding_takes_no_memory_for_what_a_frame_only_claims(tmp_path):
    frames = [*long_frames(), *lying_frames(), *mutants(seed=99, count=3000)]
    assert growth_in_a_new_process(tmp_path, frames) < 100


@needs_peak
def test_the_measure_sees_the_memory_of_tensors(tmp_path):
    assert growth_in_a_new_process(tmp_path, [], extra=200 * 2**20) > 150
