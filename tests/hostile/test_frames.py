"""Frames that lie. Each must raise WireError, and nothing else, whatever its checksum says."""

import math
import struct
import zlib
from dataclasses import dataclass, replace

import pytest
import torch

from aquila.core.packet import Codes, Dense, Packet, WireError
from aquila.core.wire import pack, unpack

DOUBLE, REFUSED = 1, 2
EMPTY, DENSE, FIXED = 0, 1, 2
HUGE = 2**32 - 1


@dataclass(frozen=True)
class Forged:
    """A frame made by hand from docs/wire-format.md, with a checksum that always matches."""

    magic: bytes = b"AQLA"
    version: int = 1
    kind: int = EMPTY
    flags: int = 0
    bits: int = 0
    round: int = 3
    ack: int = 0
    dimension: int = 0
    bucket: int = 0
    count: int = 0
    scalars: bytes = b""
    body: bytes = b""

    def bytes(self):
        header = struct.pack(
            "<4s4B4IB", self.magic, self.version, self.kind, self.flags, self.bits, self.round,
            self.ack, self.dimension, self.bucket, self.count,
        )  # fmt: skip
        return sealed(header + self.scalars + self.body)


def sealed(content):
    return content + struct.pack("<I", zlib.crc32(content))


def scalar(name, value=1.0, length=None):
    return bytes([len(name) if length is None else length]) + name + struct.pack("<d", value)


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def doubles(*values):
    return struct.pack(f"<{len(values)}d", *values)


SKIP = Forged()
WORDS = Forged(count=1, scalars=scalar(b"drift", 0.5))
DENSE_FRAME = Forged(kind=DENSE, bits=32, dimension=2, body=floats(1.5, -2.0))
DENSE_DOUBLE = Forged(kind=DENSE, flags=DOUBLE, bits=64, dimension=2, body=doubles(1.5, -2.0))
FIXED_FRAME = Forged(kind=FIXED, bits=3, dimension=5, body=floats(-1.0, 0.5) + b"\x88\x46")
FIXED_DOUBLE = replace(FIXED_FRAME, flags=DOUBLE, body=doubles(-1.0, 0.5) + b"\x88\x46")
BUCKETS = replace(FIXED_FRAME, bucket=2, body=floats(-1, -2, -3, 0.5, 0, 1) + b"\x88\x46")

SOUND = {
    "skip": SKIP,
    "words": WORDS,
    "dense float32": DENSE_FRAME,
    "dense float64": DENSE_DOUBLE,
    "fixed float32": FIXED_FRAME,
    "fixed float64": FIXED_DOUBLE,
    "buckets": BUCKETS,
}
LIES = {
    "wrong magic": replace(SKIP, magic=b"AQLB"),
    "version 0": replace(SKIP, version=0),
    "version 2": replace(SKIP, version=2),
    "kind 3": replace(SKIP, kind=3),
    "kind 255": replace(FIXED_FRAME, kind=255),
    "empty read as dense": replace(SKIP, kind=DENSE),
    "empty read as fixed": replace(SKIP, kind=FIXED),
    "dense read as empty": replace(DENSE_FRAME, kind=EMPTY),
    "dense read as fixed": replace(DENSE_FRAME, kind=FIXED),
    "fixed read as dense": replace(FIXED_FRAME, kind=DENSE),
    "flag 4": replace(SKIP, flags=4),
    "flag 128": replace(FIXED_FRAME, flags=128),
    "empty but double": replace(SKIP, flags=DOUBLE),
    "empty but bits": replace(SKIP, bits=1),
    "empty but dimension": replace(SKIP, dimension=1),
    "empty but bucket": replace(SKIP, bucket=1),
    "empty but body": replace(SKIP, body=b"\x00"),
    "refused but dense": replace(DENSE_FRAME, flags=REFUSED),
    "refused but fixed": replace(FIXED_FRAME, flags=REFUSED),
    "dense width": replace(DENSE_FRAME, bits=31),
    "dense width 0": replace(DENSE_FRAME, bits=0),
    "dense width of double": replace(DENSE_FRAME, bits=64),
    "dense flag of double": replace(DENSE_FRAME, flags=DOUBLE, bits=64),
    "dense flag of single": replace(DENSE_DOUBLE, flags=0, bits=32),
    "dense bucket": replace(DENSE_FRAME, bucket=1),
    "dense too few": replace(DENSE_FRAME, dimension=1),
    "dense too many": replace(DENSE_FRAME, dimension=3),
    "dense huge": replace(DENSE_FRAME, dimension=HUGE),
    "dense huge, no body": replace(DENSE_FRAME, dimension=HUGE, body=b""),
    "dense wraps 32 bits": replace(DENSE_FRAME, dimension=2**30 + 2),
    "dense trailing": replace(DENSE_FRAME, body=DENSE_FRAME.body + b"\x00"),
    "width 0": replace(FIXED_FRAME, bits=0),
    "width 33": replace(FIXED_FRAME, bits=33),
    "width 255": replace(FIXED_FRAME, bits=255),
    "width too small": replace(FIXED_FRAME, bits=1),
    "width too large": replace(FIXED_FRAME, bits=4),
    "no coordinates": replace(FIXED_FRAME, dimension=0),
    "no coordinates, no codes": replace(FIXED_FRAME, dimension=0, body=floats(-1.0, 0.5)),
    "fixed too few": replace(FIXED_FRAME, dimension=2),
    "fixed too many": replace(FIXED_FRAME, dimension=6),
    "fixed huge": replace(FIXED_FRAME, dimension=HUGE),
    "fixed huge, no body": replace(FIXED_FRAME, dimension=HUGE, body=b""),
    "fixed huge in buckets": replace(FIXED_FRAME, dimension=HUGE, bucket=1),
    "bucket of the whole": replace(FIXED_FRAME, bucket=5),
    "bucket too long": replace(FIXED_FRAME, bucket=6),
    "bucket huge": replace(FIXED_FRAME, bucket=HUGE),
    "buckets without grids": replace(FIXED_FRAME, bucket=2),
    "grids without buckets": replace(BUCKETS, bucket=0),
    "other buckets": replace(BUCKETS, bucket=1),
    "fixed trailing": replace(FIXED_FRAME, body=FIXED_FRAME.body + b"\x00"),
    "fixed cut": replace(FIXED_FRAME, body=FIXED_FRAME.body[:-1]),
    "fixed flag of double": replace(FIXED_FRAME, flags=DOUBLE),
    "fixed flag of single": replace(FIXED_DOUBLE, flags=0),
    "spare bit": replace(FIXED_FRAME, body=floats(-1.0, 0.5) + b"\x88\xc6"),
    "scalar missing": replace(SKIP, count=1),
    "scalars missing": replace(WORDS, count=255),
    "scalar not counted": replace(WORDS, count=0),
    "scalar eats the body": replace(FIXED_FRAME, count=1),
    "scalar cut": replace(WORDS, scalars=WORDS.scalars[:-1]),
    "scalar of a long name": replace(WORDS, scalars=scalar(b"drift", length=255)),
    "scalar without a name": replace(WORDS, scalars=scalar(b"")),
    "scalar name of 33": replace(WORDS, scalars=scalar(b"a" * 33)),
    "scalar name of digits": replace(WORDS, scalars=scalar(b"123")),
    "scalar name of nulls": replace(WORDS, scalars=scalar(b"\x00\x00")),
    "scalar name not ASCII": replace(WORDS, scalars=scalar("ä".encode())),
    "scalar name not UTF-8": replace(WORDS, scalars=scalar(b"a\xff\xfe")),
    "scalar twice": replace(WORDS, count=2, scalars=2 * WORDS.scalars),
}
for number in (math.nan, math.inf, -math.inf):
    LIES |= {
        f"scalar {number}": replace(WORDS, scalars=scalar(b"drift", number)),
        f"dense {number}": replace(DENSE_FRAME, body=floats(1.0, number)),
        f"dense double {number}": replace(DENSE_DOUBLE, body=doubles(number, 1.0)),
        f"low {number}": replace(FIXED_FRAME, body=floats(number, 0.5) + b"\x88\x46"),
        f"step {number}": replace(FIXED_FRAME, body=floats(-1.0, number) + b"\x88\x46"),
        f"low double {number}": replace(FIXED_DOUBLE, body=doubles(number, 0.5) + b"\x88\x46"),
        f"step double {number}": replace(FIXED_DOUBLE, body=doubles(-1, number) + b"\x88\x46"),
        f"last grid {number}": replace(
            BUCKETS, body=floats(-1, -2, number, 0.5, 0, 1) + b"\x88\x46"
        ),
        f"last step {number}": replace(
            BUCKETS, body=floats(-1, -2, -3, 0.5, 0, number) + b"\x88\x46"
        ),
    }
LIES |= {
    "negative step": replace(FIXED_FRAME, body=floats(-1.0, -0.5) + b"\x88\x46"),
    "one negative step": replace(BUCKETS, body=floats(-1, -2, -3, 0.5, -0.1, 1) + b"\x88\x46"),
    "product overflows": replace(FIXED_FRAME, body=floats(-3e38, 1e38) + b"\x88\x46"),
    "sum overflows": replace(FIXED_FRAME, body=floats(3e38, 2e37) + b"\x88\x46"),
    "double overflows": replace(FIXED_DOUBLE, body=doubles(0.0, 1e308) + b"\x88\x46"),
}


def small_frames():
    grid = torch.tensor([-1.0]), torch.tensor([0.5])
    return {
        "skip": Packet(3),
        "words": Packet(3, scalars={"drift": 0.5}, ack=2),
        "dense": Packet(3, Dense(torch.tensor([1.5, -2.0]))),
        "codes": Packet(3, Codes(torch.tensor([0, 1, 2, 3, 4]), 3, *grid, 5), {"loss": 1.0}),
    }


@pytest.fixture(params=small_frames())
def frame(request):
    return pack(small_frames()[request.param])


@pytest.mark.parametrize("name", SOUND)
def test_forging_without_lying_is_read(name):
    """Otherwise the lies below might be refused for the wrong reason."""
    packet = unpack(SOUND[name].bytes())
    assert packet.round == 3
    assert pack(packet) == SOUND[name].bytes()


@pytest.mark.parametrize("name", LIES)
def test_lies_with_a_valid_checksum_are_refused(name):
    with pytest.raises(WireError):
        unpack(LIES[name].bytes())


def test_a_frame_cut_anywhere_is_refused(frame):
    for length in range(len(frame)):
        with pytest.raises(WireError):
            unpack(frame[:length])


def test_a_frame_cut_anywhere_and_sealed_again_is_refused(frame):
    content = frame[:-4]
    for length in range(len(content)):
        with pytest.raises(WireError):
            unpack(sealed(content[:length]))


def test_a_frame_with_more_behind_it_is_refused(frame):
    for more in (b"\x00", b"\x00" * 4, frame):
        with pytest.raises(WireError):
            unpack(frame + more)
        with pytest.raises(WireError):
            unpack(sealed(frame[:-4] + more))


def test_any_flipped_bit_is_refused(frame):
    for place in range(8 * len(frame)):
        damaged = bytearray(frame)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(WireError):
            unpack(bytes(damaged))


def test_any_flipped_bit_sealed_again_is_refused_or_another_sound_packet(frame):
    for place in range(8 * (len(frame) - 4)):
        content = bytearray(frame[:-4])
        content[place // 8] ^= 1 << place % 8
        forged = sealed(bytes(content))
        try:
            packet = unpack(forged)
        except WireError:
            continue
        assert pack(packet) == forged


@pytest.mark.parametrize("name", ["dense float32", "dense float64", "fixed float32", "buckets"])
@pytest.mark.parametrize("difference", [-1, 1, HUGE])
def test_another_dimension_than_expected_is_refused(name, difference):
    forged = SOUND[name]
    assert unpack(forged.bytes(), forged.dimension).vector.dimension == forged.dimension
    with pytest.raises(WireError, match="are expected"):
        unpack(forged.bytes(), forged.dimension + difference)
