"""Randomly damaged frames raise only WireError, and false sizes allocate no memory."""

import pickle
import struct
import subprocess
import sys
from dataclasses import replace

import fuzz
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aquila.core import envelope
from aquila.core.envelope import kind_of
from aquila.core.packet import Codes, Dense, Packet, RelayedRound, RelayedUploads, code_dtype
from aquila.core.wire import pack
from helpers import frame_reader
from helpers.frame_builder import CODED, DITHERED, RELAYED, RawFrame, floats, relayed_reply
from helpers.frame_mutations import mutated_frames, raw_header

FRAMES_PER_SEED = 4_000

# Python does not count the memory of tensors, so the system is asked for the peak
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
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
torch.ones(200 * 2**20, dtype=torch.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
needs_peak = pytest.mark.skipif(
    sys.platform == "win32", reason="needs the peak memory of a POSIX system"
)


def codes(dimension, bits, bucket=None, dtype=torch.float32):
    rng = np.random.default_rng((dimension, bits))
    bucket = bucket or dimension
    grids = -(-dimension // bucket)
    numbers = torch.from_numpy(rng.integers(0, 2**bits, dimension)).to(code_dtype(bits))
    low = -torch.from_numpy(rng.random(grids)).to(dtype)
    step = torch.from_numpy(rng.random(grids)).to(dtype)
    return Codes(numbers, bits, low, step, bucket)


def valid_frames():
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
        Codes(torch.tensor([3] * 99 + [5]), 3, torch.zeros(1), torch.ones(1), 100),
    ]
    packets = [Packet(7, vector) for vector in vectors]
    packets += [Packet(7, vector, {"loss": 0.5, "drift": 2.0}, ack=6) for vector in vectors]
    return [pack(packet) for packet in [*packets, Packet(7, refused=True)]]


@pytest.mark.parametrize("seed", range(2))
def test_both_readers_agree_on_damaged_frames(seed, monkeypatch):
    monkeypatch.setattr(envelope, "UNCHECKED_DIMENSION_LIMIT", fuzz.LIMIT)
    monkeypatch.setattr(frame_reader, "LIMIT", fuzz.LIMIT)
    outcomes = fuzz.fuzz(seed, FRAMES_PER_SEED, second_reader_every=5)
    # the loop tests something only if both outcomes occur
    for kind in ("empty", "dense", "fixed", "coded", "dithered", "relayed"):
        assert min(outcomes[kind, "read"], outcomes[kind, "refused"]) > 20


def refused(frame):
    """Return whether both readers refuse a frame; otherwise check the packet bit for bit."""
    packet = fuzz.read_or_none(frame)
    fuzz.assert_second_reader_agrees(frame, None, packet)
    return packet is None


@settings(deadline=None, derandomize=True, max_examples=500)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data):
    assert refused(data)


@settings(deadline=None, derandomize=True, max_examples=500)
@given(
    st.sampled_from([0, 1, 2, 3, 4, 5]), st.integers(0, 3), st.integers(0, 65),
    st.integers(0, 12), st.integers(0, 5), st.integers(0, 2), st.binary(max_size=80),
)  # fmt: skip
def test_readers_agree_on_random_bodies_after_plausible_headers(
    kind, flags, bits, dimension, bucket, scalars, body
):
    raw_frame = RawFrame(
        kind=kind, flags=flags, bits=bits, dimension=dimension, bucket=bucket, count=scalars,
        body=body,
    )  # fmt: skip
    refused(raw_frame.bytes())


@settings(deadline=None, derandomize=True, max_examples=1000)
@given(
    st.integers(1, 9), st.integers(1, 40), st.integers(0, 4), st.integers(1, 40),
    st.binary(max_size=40),
)  # fmt: skip
def test_readers_agree_on_random_segments_after_a_valid_header(
    bits, dimension, mode, length, content
):
    body = floats(-1.0, 0.5) + bytes([mode, length]) + content
    refused(RawFrame(kind=CODED, bits=bits, dimension=dimension, body=body).bytes())


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    st.integers(2, 9), st.integers(1, 40), st.integers(0, 2**32 - 1), st.integers(0, 255),
    st.binary(max_size=20),
)  # fmt: skip
def test_readers_agree_on_random_streams_after_a_valid_header(
    bits, dimension, seed, sparsity, stream
):
    body = struct.pack("<fIB", 0.5, seed, sparsity) + stream
    refused(RawFrame(kind=DITHERED, bits=bits, dimension=dimension, body=body).bytes())


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    st.integers(0, 2**32 - 1), st.floats(), st.integers(0, 3), st.floats(), st.integers(0, 40),
    st.sampled_from(valid_frames()), st.binary(max_size=20),
)  # fmt: skip
def test_readers_agree_on_random_rounds_after_a_valid_header(
    base, factor, count, weight, length, reply, rest
):
    start = struct.pack("<IdB", base, factor, count)
    for reply_length in (length, len(reply)):
        for body in (start + rest, start + relayed_reply(weight, reply, reply_length) + rest):
            refused(RawFrame(kind=RELAYED, dimension=5, body=body).bytes())


def long_relayed_frames():
    reply = pack(Packet(0, Dense(torch.zeros(1))))
    rounds = [
        [RelayedRound(1, 1.0, (), ())] * 20_000,
        [RelayedRound(1, 1.0, (1.0,) * 20_000, (reply,) * 20_000)],
        [RelayedRound(1, 1.0, (1.0,), (pack(Packet(0, codes(1_600_000, 1))),))] * 3,
    ]
    return [pack(Packet(1, RelayedUploads(5, torch.float32, tuple(one)))) for one in rounds]


def long_frames():
    vectors = [
        Dense(torch.linspace(-1, 1, 50_000)),
        codes(1_600_000, 1),
        codes(200_000, 9),
        codes(50_000, 32),
        codes(20_000, 1, bucket=1),
        Codes(torch.arange(10**6).remainder(9).byte(), 6, torch.zeros(1), torch.ones(1), 10**6),
        Codes(torch.zeros(10**6, dtype=torch.int16), 12, torch.zeros(1), torch.ones(1), 10**6),
    ]
    frames = [pack(Packet(1, vector)) for vector in vectors]
    return [*frames, pack(Packet(1, None, {f"s{i}": 1.0 for i in range(255)}))]


def frames_with_false_sizes():
    """Yield frames with a valid checksum and a far too large dimension or number of buckets."""
    for frame in [*valid_frames(), *long_frames(), *long_relayed_frames()]:
        for dimension in (2**28, 2**31, 2**32 - 1):
            raw_frame = replace(raw_header(frame), dimension=dimension)
            yield raw_frame.bytes()
            yield replace(raw_frame, bucket=1).bytes()


def memory_growth(tmp_path, frames):
    """Return the growth in megabytes of the peak resident set by frames, and with 200 more."""
    (tmp_path / "frames").write_bytes(pickle.dumps(list(frames)))
    command = [sys.executable, "-c", DECODE, str(tmp_path / "frames")]
    # through a shell, because a process inherits the peak of its parent
    shell = ["sh", "-c", '"$@"; exit $?', "sh", *command]
    done = subprocess.run(shell, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return [int(line) / unit for line in done.stdout.split()]


@needs_peak
def test_decoding_allocates_no_memory_for_false_sizes(tmp_path):
    # a valid dithered frame of a few bytes can have that many coordinates
    damaged = [
        frame
        for frame, _ in mutated_frames(seed=99, count=3000)
        if len(frame) > 1 and kind_of(frame) != DITHERED
    ]
    frames = [*long_frames(), *long_relayed_frames(), *frames_with_false_sizes(), *damaged]
    growth, with_tensor = memory_growth(tmp_path, frames)
    assert growth < 100
    assert with_tensor > 150  # tensors are counted
