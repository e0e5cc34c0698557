"""Invalid frames with a valid checksum: each must raise WireError and nothing else."""

import math
import random
from dataclasses import replace
from itertools import accumulate

import pytest
import torch
from fuzz import assert_second_reader_agrees, content

from aquila.core import envelope
from aquila.core.envelope import kind_of
from aquila.core.packet import Codes, Dense, Packet, RelayedRound, RelayedUploads, WireError
from aquila.core.tensors import one_tensor
from aquila.core.wire import pack, unpack
from aquila.runtime.reply_reader import read_reply
from helpers import frame_builder, frame_reader
from helpers.frame_builder import (
    CODED,
    DENSE,
    DIRECT,
    DITHERED,
    DOUBLE,
    EMPTY,
    EXCEPTIONS,
    FIXED,
    FRESH,
    PACKED,
    REFUSED,
    RELAYED,
    SIGNED_EXCEPTIONS,
    ZIGZAG,
    RawFrame,
    doubles,
    floats,
    numbers,
    relayed_reply,
    relayed_round,
    scalar,
    segment,
    stream,
    table,
    varint,
    with_crc,
)  # fmt: skip
from helpers.frame_mutations import any_distances

HUGE = 2**32 - 1
GRID = floats(-1.0, 0.5)


SKIP = RawFrame()
WITH_SCALAR = RawFrame(count=1, scalars=scalar(b"drift", 0.5))
WITH_DOUBLE = RawFrame(count=1, scalars=scalar(b"momentum", 1 / 3))
DENSE_FRAME = RawFrame(kind=DENSE, dimension=2, body=floats(1.5, -2.0))
DENSE_DOUBLE = RawFrame(kind=DENSE, flags=DOUBLE, dimension=2, body=doubles(1.5, -2.0))
FIXED_FRAME = RawFrame(kind=FIXED, bits=3, dimension=5, body=floats(-1.0, 0.5) + b"\x88\x46")
FIXED_DOUBLE = replace(FIXED_FRAME, flags=DOUBLE, body=doubles(-1.0, 0.5) + b"\x88\x46")
BUCKETS = replace(FIXED_FRAME, bucket=2, body=floats(-1, -2, -3, 0.5, 0, 1) + b"\x88\x46")

VALID = {
    "skip": SKIP,
    "scalars": WITH_SCALAR,
    "scalar, name and float64": WITH_DOUBLE,
    "refers to a checksum": replace(SKIP, refers_to=1),
    "largest fields": replace(SKIP, ack=HUGE, refers_to=HUGE),
    "dense float32": DENSE_FRAME,
    "dense float64": DENSE_DOUBLE,
    "fixed float32": FIXED_FRAME,
    "fixed float64": FIXED_DOUBLE,
    "buckets": BUCKETS,
}
INVALID = {
    "wrong magic": replace(SKIP, magic=0xB0),
    "version 0": replace(SKIP, version=0),
    "version 2": replace(SKIP, version=2),
    "version 4": replace(SKIP, version=4),
    "kind 5, no round": replace(SKIP, kind=RELAYED),
    "kind 6": replace(SKIP, kind=6),
    "kind 7": replace(FIXED_FRAME, kind=7),
    "checksum 0 written": replace(SKIP, refers=True),
    "checksum missing": replace(SKIP, refers_to=7, refers=False, more=True),
    "fields that say nothing": replace(SKIP, more=True),
    "fields that say nothing, dense": replace(DENSE_FRAME, more=True),
    "empty read as fixed": replace(SKIP, kind=FIXED),
    "empty read as coded": replace(SKIP, kind=CODED),
    "empty read as dithered": replace(SKIP, kind=DITHERED),
    "dense read as empty": replace(DENSE_FRAME, kind=EMPTY),
    "dense read as fixed": replace(DENSE_FRAME, kind=FIXED),
    "dense read as coded": replace(DENSE_FRAME, kind=CODED),
    "dense read as dithered": replace(DENSE_FRAME, kind=DITHERED),
    "fixed read as dense": replace(FIXED_FRAME, kind=DENSE),
    "fixed read as coded": replace(FIXED_FRAME, kind=CODED),
    "fixed read as dithered": replace(FIXED_FRAME, kind=DITHERED),
    "empty but double": replace(SKIP, flags=DOUBLE),
    "empty but bucket": replace(SKIP, bucket=1),
    "empty but body": replace(SKIP, body=b"\x00"),
    "refused but dense": replace(DENSE_FRAME, flags=REFUSED),
    "refused but fixed": replace(FIXED_FRAME, flags=REFUSED),
    "dense flag of double": replace(DENSE_FRAME, flags=DOUBLE),
    "dense flag of single": replace(DENSE_DOUBLE, flags=0),
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
    "padding bit": replace(FIXED_FRAME, body=floats(-1.0, 0.5) + b"\x88\xc6"),
    "scalar missing": replace(SKIP, count=1),
    "scalars missing": replace(WITH_SCALAR, count=255),
    "scalar not counted": replace(WITH_SCALAR, count=0),
    "scalar eats the body": replace(FIXED_FRAME, count=1),
    "scalar cut": replace(WITH_SCALAR, scalars=WITH_SCALAR.scalars[:-1]),
    "scalar of a long name": replace(WITH_SCALAR, scalars=scalar(b"drift", field=127)),
    "scalar with an unknown number": replace(WITH_SCALAR, scalars=scalar(b"", field=48)),
    "numbered name spelled out": replace(WITH_SCALAR, scalars=scalar(b"drift", field=5)),
    "float64 where float32 suffices": replace(WITH_SCALAR, scalars=scalar(b"drift", single=False)),
    "float64 zero": replace(WITH_SCALAR, scalars=scalar(b"drift", -0.0, single=False)),
    "scalar without a name": replace(WITH_SCALAR, scalars=scalar(b"")),
    "scalar name of 33": replace(WITH_SCALAR, scalars=scalar(b"a" * 33)),
    "scalar name of digits": replace(WITH_SCALAR, scalars=scalar(b"123")),
    "scalar name of nulls": replace(WITH_SCALAR, scalars=scalar(b"\x00\x00")),
    "scalar name not ASCII": replace(WITH_SCALAR, scalars=scalar("ä".encode())),
    "scalar name not UTF-8": replace(WITH_SCALAR, scalars=scalar(b"a\xff\xfe")),
    "scalar twice": replace(WITH_SCALAR, count=2, scalars=2 * WITH_SCALAR.scalars),
}
for number in (math.nan, math.inf, -math.inf):
    INVALID |= {
        f"scalar {number}": replace(WITH_SCALAR, scalars=scalar(b"drift", number)),
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
INVALID |= {
    "negative step": replace(FIXED_FRAME, body=floats(-1.0, -0.5) + b"\x88\x46"),
    "one negative step": replace(BUCKETS, body=floats(-1, -2, -3, 0.5, -0.1, 1) + b"\x88\x46"),
    "product overflows": replace(FIXED_FRAME, body=floats(-3e38, 1e38) + b"\x88\x46"),
    "sum overflows": replace(FIXED_FRAME, body=floats(3e38, 2e37) + b"\x88\x46"),
    "double overflows": replace(FIXED_DOUBLE, body=doubles(0.0, 1e308) + b"\x88\x46"),
}


# ---- coded frames ----


def coded(*segments, dimension=5, bits=3, grid=GRID, **header):
    return RawFrame(
        kind=CODED, bits=bits, dimension=dimension, body=grid + b"".join(segments), **header
    )


def with_part(part, value, mode=DIRECT, codes=(0, 1, 2, 1, 1)):
    """Return a frame in whose symbol stream one part is replaced."""
    broken = replace(stream(codes), **{part: value}).bytes()
    return coded(segment(mode, len(codes), broken), dimension=len(codes))


MANY = [0, 1, 2, 1, 1] * 60
FOUR = stream(MANY)
ONE = stream([0, 1, 2, 1, 1])
LONG = stream([i * i % 7 for i in range(200)])  # with words
SIGNS = [0, 1, 1, 0, 1]
EXCEPTIONS_FRAME = coded(frame_builder.exceptions(5, 3, [1, 0], [0, 6]))
SIGNED_FRAME = coded(frame_builder.signed_exceptions(SIGNS, 3, [4], [2]))
ZIGZAG_WIDE = coded(frame_builder.zigzag(2048, [0, 1, 17, 4095, 300]), bits=12)
CODED_VALID = {
    "packed": coded(segment(PACKED, 5, b"\x88\x46")),
    "direct": coded(frame_builder.direct_segment([0, 7, 3, 3, 3])),
    "direct, four states": coded(frame_builder.direct_segment(MANY), dimension=300),
    "direct, with words": coded(segment(DIRECT, 200, LONG.bytes()), dimension=200),
    "direct, 8 bits": coded(frame_builder.direct_segment([0, 255, 3, 3, 3]), bits=8),
    "zigzag": coded(frame_builder.zigzag(7, [0, 1, 2, 7, 6])),
    "zigzag wide": ZIGZAG_WIDE,
    "zigzag, 32 bits": coded(frame_builder.zigzag(HUGE, [0, 1, HUGE, HUGE - 1, 2**31]), bits=32),
    "exceptions": EXCEPTIONS_FRAME,
    "exceptions, no exceptions": coded(frame_builder.exceptions(5, 3)),
    "exceptions, exceptions alone": coded(frame_builder.exceptions(5, 3, [0] * 5, [0, 1, 2, 6, 0])),
    "exceptions, four states": coded(
        frame_builder.exceptions(999, 3, [0] * 600, [5] * 600), dimension=999
    ),
    "exceptions, 32 bits": coded(frame_builder.exceptions(5, HUGE, [4], [HUGE - 1]), bits=32),
    "signed exceptions": SIGNED_FRAME,
    "signed exceptions, no exceptions": coded(frame_builder.signed_exceptions(SIGNS, 0)),
    "signed exceptions, one bit": coded(frame_builder.signed_exceptions(SIGNS, 1), bits=1),
    "signed exceptions, 32 bits": coded(
        frame_builder.signed_exceptions(SIGNS, 5, [1, 2], [2**31 - 2, 0]), bits=32
    ),
    "every mode": coded(
        *(frame_builder.segment_in_mode(mode, [1, 2, 1, 1, 7], 3, 1) for mode in range(5)),
        dimension=25,
    ),
    "segments of one code": coded(*[frame_builder.exceptions(1, code) for code in range(5)]),
    "frequencies for symbols that do not fit the bits": coded(
        segment(DIRECT, 5, stream([0, 1, 0, 0, 1], [2000, 1000, *[0] * 250, 1096]).bytes())
    ),
    "frequencies for numbers of more than 32 bits": coded(
        segment(ZIGZAG, 5, b"\x03" + stream([0] * 5, [4000, *[0] * 199, 96]).bytes())
    ),
    "float64": coded(
        frame_builder.exceptions(5, 3),
        grid=doubles(-1.0, 0.5),
        flags=DOUBLE,
        count=1,
        scalars=scalar(b"loss"),
    ),
    "coded in buckets": coded(
        frame_builder.exceptions(5, 3), grid=floats(-1, -2, -3, 0.5, 0, 1), bucket=2
    ),
}
CODED_INVALID = {
    # header and grids
    "coded, width 0": replace(EXCEPTIONS_FRAME, bits=0),
    "coded, width 33": replace(EXCEPTIONS_FRAME, bits=33),
    "coded, width 255": replace(EXCEPTIONS_FRAME, bits=255),
    "coded, refused": replace(EXCEPTIONS_FRAME, flags=REFUSED),
    "coded, flag 8": replace(EXCEPTIONS_FRAME, flags=8),
    "coded, flag of double": replace(EXCEPTIONS_FRAME, flags=DOUBLE),
    "coded, no coordinates": replace(EXCEPTIONS_FRAME, dimension=0),
    "coded, no coordinates, no segments": coded(dimension=0),
    "coded, no segments": coded(),
    "coded, no grid": coded(dimension=5, grid=b""),
    "coded, one fewer": replace(EXCEPTIONS_FRAME, dimension=4),
    "coded, one more": replace(EXCEPTIONS_FRAME, dimension=6),
    "coded, huge": replace(EXCEPTIONS_FRAME, dimension=HUGE),
    "coded, huge and consistent": coded(frame_builder.exceptions(HUGE, 3), dimension=HUGE),
    "coded, just above the limit": coded(
        frame_builder.exceptions(2**28 + 1, 3), dimension=2**28 + 1
    ),
    "coded, huge in buckets": replace(EXCEPTIONS_FRAME, dimension=HUGE, bucket=1),
    "coded, bucket of the whole": replace(EXCEPTIONS_FRAME, bucket=5),
    "coded, bucket too long": replace(EXCEPTIONS_FRAME, bucket=HUGE),
    "coded, buckets without grids": replace(EXCEPTIONS_FRAME, bucket=2),
    "coded, grids without buckets": replace(CODED_VALID["coded in buckets"], bucket=0),
    "coded read as fixed": replace(EXCEPTIONS_FRAME, kind=FIXED),
    "coded read as dense": replace(EXCEPTIONS_FRAME, kind=DENSE),
    "coded read as empty": replace(EXCEPTIONS_FRAME, kind=EMPTY),
    "coded, negative step": coded(frame_builder.exceptions(5, 3), grid=floats(-1.0, -0.5)),
    "coded, top overflows": coded(frame_builder.exceptions(5, 3), grid=floats(0.0, 1e38)),
    # segments
    "bytes after the last segment": coded(frame_builder.exceptions(5, 3), b"\x00"),
    "a segment too many": coded(frame_builder.exceptions(5, 3), frame_builder.exceptions(1, 3)),
    "mode 5": coded(segment(5, 5, b"\x03\x00")),
    "mode 255": coded(segment(255, 5, b"\x03\x00")),
    "segment of no codes": coded(frame_builder.exceptions(0, 3), frame_builder.exceptions(5, 3)),
    "segment of too many codes": coded(frame_builder.exceptions(6, 3)),
    "segment of 2^32 - 1 codes": coded(frame_builder.exceptions(HUGE, 3)),
    "segments of too many codes": coded(
        frame_builder.exceptions(3, 3), frame_builder.exceptions(3, 3)
    ),
    "segments of too few codes": coded(
        frame_builder.exceptions(2, 3), frame_builder.exceptions(2, 3)
    ),
    # whole numbers
    "length longer than necessary": coded(b"\x03\x85\x00\x03\x00"),
    "length much longer than necessary": coded(b"\x03\x85\x80\x80\x80\x00\x03\x00"),
    "length of 33 bits": coded(b"\x03\x85\x80\x80\x80\x10\x03\x00"),
    "length of 35 bits": coded(b"\x03\xff\xff\xff\xff\x7f\x03\x00"),
    "length of 6 bytes": coded(b"\x03\x85\x80\x80\x80\x80\x00\x03\x00"),
    "centre longer than necessary": coded(b"\x03\x05\x83\x00\x00"),
    "centre of 33 bits": coded(b"\x03\x05\x83\x80\x80\x80\x10\x00"),
    "exceptions longer than necessary": coded(b"\x03\x05\x03\x80\x00"),
    "words longer than necessary": coded(
        segment(DIRECT, 5, table([4096]) + b"\x80\x00" + b"\x00\x80\x00\x00")
    ),
    # tables
    "frequencies add up to 4095": with_part("frequencies", [1000, 2000, 1095]),
    "frequencies add up to 4097": with_part("frequencies", [1000, 2000, 1097]),
    "frequencies add up to 8192": with_part("frequencies", [2048, 4096, 2048]),
    "frequencies wrap 16 bits": with_part("frequencies", [4096, 32768, 32768]),
    "frequency of 4097": with_part("frequencies", [4097]),
    "frequency of 8190": with_part("frequencies", [8190]),
    "frequency too wide": coded(segment(DIRECT, 5, b"\x00" + bytes(5) + b"\x00\x00\x80\x00\x00")),
    "no frequencies at all": with_part("frequencies", [0, 0, 0]),
    "last frequency is 0": with_part("frequencies", [*ONE.frequencies, 0]),
    "symbol without a frequency": with_part("frequencies", [4096]),
    "padding bit of a table": coded(
        segment(DIRECT, 5, b"\x00\x00\x30\x00\x02\x00\x00\x80\x00\x00")
    ),
    "table cut": coded(segment(DIRECT, 5, table(ONE.frequencies)[:-1])),
    "table of 256 frequencies cut": coded(segment(DIRECT, 5, b"\xff\xff\xff")),
    # states and words
    **{
        f"state {state:#x}": with_part("states", [state])
        for state in (0, 1, 2**15 - 1, 2**15, ONE.states[0] + 1, 2**31 - 1, 2**31, HUGE)
    },
    **{
        f"state {k} of four out of range": with_part(
            "states", [2**31 if i == k else x for i, x in enumerate(FOUR.states)], codes=MANY
        )
        for k in range(4)
    },
    **{
        f"state {k} of four ends with a wrong value": with_part(
            "states", [x + 4096 * (i == k) for i, x in enumerate(FOUR.states)], codes=MANY
        )
        for k in range(4)
    },
    # decoding both would end at 2^15 and use up the words
    "state 0 with a correct end": coded(
        segment(DIRECT, 1, replace(stream([0]), states=[0], words=[2**15]).bytes()), dimension=1
    ),
    "state 2^31 with a correct end": coded(
        segment(DIRECT, 2, frame_builder.Stream([16, 4080], [2**31], []).bytes()), dimension=2
    ),
    "states in another order": with_part("states", FOUR.states[::-1], codes=MANY),
    "one state instead of four": with_part("states", FOUR.states[:1], codes=MANY),
    "four states instead of one": with_part("states", 4 * ONE.states),
    "a word too many": with_part("words", [1]),
    "a word too many after words": with_part("words", [*FOUR.words, 0], codes=MANY),
    "a word too many before words": with_part("words", [0, *FOUR.words], codes=MANY),
    "a word is missing": with_part("words", FOUR.words[:-1], codes=MANY),
    "all words are missing": with_part("words", [], codes=MANY),
    "another word": with_part("words", [FOUR.words[0] ^ 1, *FOUR.words[1:]], codes=MANY),
    "2^32 - 1 words": coded(segment(DIRECT, 5, table([4096]) + varint(HUGE) + b"\x00\x80\x00\x00")),
    # modes
    "packed, padding bit": coded(segment(PACKED, 5, b"\x88\xc6")),
    "packed, cut": coded(segment(PACKED, 5, b"\x88")),
    "packed, too long": coded(segment(PACKED, 5, b"\x88\x46\x00")),
    "direct, code does not fit its bits": coded(frame_builder.direct_segment([0, 8, 3, 3, 3])),
    "direct, code far too large": coded(frame_builder.direct_segment([0, 255, 3, 3, 3])),
    "direct, one bit": coded(frame_builder.direct_segment([0, 2, 1, 1, 1]), bits=1),
    "direct, 9 bits": coded(frame_builder.direct_segment([0, 7, 3, 3, 3]), bits=9),
    "direct, 32 bits": coded(frame_builder.direct_segment([0, 7, 3, 3, 3]), bits=32),
    "zigzag, centre does not fit its bits": coded(frame_builder.zigzag(8, [0, 1, 2, 3, 4])),
    "zigzag, number does not fit its bits": coded(frame_builder.zigzag(3, [0, 1, 2, 3, 8])),
    "zigzag, number far too large": coded(frame_builder.zigzag(3, [0, 1, 2, 3, HUGE])),
    "zigzag, number of 13 bits": coded(frame_builder.zigzag(3, [0, 1, 2, 3, 4096]), bits=12),
    "zigzag, symbol 128": coded(segment(ZIGZAG, 5, b"\x03" + stream([0, 128, 0, 0, 0]).bytes())),
    "zigzag, symbol 255": coded(segment(ZIGZAG, 5, b"\x03" + stream([0, 255, 0, 0, 0]).bytes())),
    "zigzag, symbol 128 of 32 bits": coded(
        segment(ZIGZAG, 5, b"\x03" + stream([0, 128, 0, 0, 0]).bytes()), bits=32
    ),
    "zigzag, extra bits are missing": coded(
        segment(ZIGZAG, 5, b"\x03" + stream([0, 16, 0, 0, 0]).bytes()), bits=12
    ),
    "zigzag, too many extra bits": coded(
        segment(ZIGZAG, 5, b"\x03" + stream([0, 16, 0, 0, 0]).bytes() + b"\x00\x00"), bits=12
    ),
    "zigzag, padding bit set after extra bits": coded(
        segment(ZIGZAG, 5, b"\x03" + stream([0, 16, 0, 0, 0]).bytes() + b"\x04"), bits=12
    ),
    "exceptions, centre does not fit its bits": coded(frame_builder.exceptions(5, 8)),
    "exceptions, centre of 32 bits": coded(frame_builder.exceptions(5, HUGE), bits=31),
    "exceptions, more exceptions than codes": coded(
        frame_builder.exceptions(5, 3, [0] * 6, [0] * 6)
    ),
    "exceptions, 2^32 - 1 exceptions": coded(segment(EXCEPTIONS, 5, b"\x03" + varint(HUGE))),
    "exceptions, exceptions are missing": coded(segment(EXCEPTIONS, 5, b"\x03\x02")),
    "exceptions, values are missing": coded(segment(EXCEPTIONS, 5, b"\x03\x02" + numbers([0, 0]))),
    "exceptions, exception after the end": coded(frame_builder.exceptions(5, 3, [5], [0])),
    "exceptions, last exception after the end": coded(
        frame_builder.exceptions(5, 3, [0, 0, 3], [0, 0, 0])
    ),
    "exceptions, exception in the next segment": coded(
        frame_builder.exceptions(3, 3, [3], [0]), frame_builder.exceptions(2, 3)
    ),
    "exceptions, gaps wrap 32 bits": coded(frame_builder.exceptions(5, 3, [1, HUGE], [0, 0])),
    "exceptions, value does not fit its bits": coded(frame_builder.exceptions(5, 3, [1], [7])),
    "exceptions, value wraps 32 bits": coded(frame_builder.exceptions(5, 3, [1], [HUGE]), bits=32),
    "signed exceptions, centre does not fit its bits": coded(
        frame_builder.signed_exceptions(SIGNS, 8)
    ),
    "signed exceptions, padding bit": coded(segment(SIGNED_EXCEPTIONS, 5, b"\x03\x20\x00")),
    "signed exceptions, signs cut": coded(
        segment(SIGNED_EXCEPTIONS, 17, b"\x03\x01\x00"), dimension=17
    ),
    "signed exceptions, more exceptions than codes": coded(
        frame_builder.signed_exceptions(SIGNS, 3, [0] * 6, [0] * 6)
    ),
    "signed exceptions, exception after the end": coded(
        frame_builder.signed_exceptions(SIGNS, 3, [5], [0])
    ),
    "signed exceptions, magnitude does not fit its bits": coded(
        frame_builder.signed_exceptions(SIGNS, 3, [0], [3])
    ),
    "signed exceptions, negative magnitude does not fit its bits": coded(
        frame_builder.signed_exceptions(SIGNS, 3, [1], [3])
    ),
    "signed exceptions, magnitude wraps 32 bits": coded(
        frame_builder.signed_exceptions(SIGNS, 3, [1], [2**31 - 1]), bits=32
    ),
    "signed exceptions, largest number as magnitude": coded(
        frame_builder.signed_exceptions(SIGNS, 3, [1], [HUGE]), bits=32
    ),
    "signed exceptions, exception of one bit": coded(
        frame_builder.signed_exceptions(SIGNS, 0, [1], [0]), bits=1
    ),
}
for number in (math.nan, math.inf, -math.inf):
    CODED_INVALID |= {
        f"coded, low {number}": coded(frame_builder.exceptions(5, 3), grid=floats(number, 0.5)),
        f"coded, step {number}": coded(frame_builder.exceptions(5, 3), grid=floats(-1.0, number)),
    }
VALID |= CODED_VALID
INVALID |= CODED_INVALID


# ---- dithered frames ----

SEED = 7
NONE, SOME = 248, 60  # sparsities without candidates, and with those of low complements


def dithered(*distances, seed=SEED, bits=3, step=GRID[4:], flags=0, **invalid):
    body = step + frame_builder.dithered(distances, seed, **invalid)
    return RawFrame(kind=DITHERED, flags=flags, bits=bits, dimension=len(distances), body=body)


def streamed(*distances, stream, sparsity=0):
    return dithered(*distances, sparsity=sparsity, stream=stream)


DITHERED_FRAME = dithered(0, 1, -1, 0, 2)
DECISIONS = frame_builder.encode_decisions([0, 1, -1, 0, 2], SEED, 0)
WHOLE = DECISIONS.bytes().ljust(DECISIONS.bytes_read, b"\0")
RARE = [0] * 500
RARE[1], RARE[2], RARE[3] = -1, 4, 1
DITHERED_VALID = {
    "dithered": DITHERED_FRAME,
    "dithered, one coordinate": dithered(0),
    "dithered, nothing sent": dithered(0, 0, 0, 0, 0),
    "dithered, everything sent": dithered(4, -3, 3, -2, 1),
    "dithered, all listed": dithered(4, -3, 3, -2, 1, sparsity=NONE),
    "dithered, some listed": dithered(4, -3, 3, -2, 1, sparsity=SOME),
    "dithered, very sparse": dithered(*RARE),
    "dithered, no candidates": dithered(0, sparsity=NONE, stream=b"\xff\1"),
    "dithered, sparsity 255": dithered(0, 1, -1, 0, 2, sparsity=255),
    "dithered, two blocks": dithered(*[0] * 60, 1, 2, 0, 1, *[-1] * 9, sparsity=120, seed=16),
    "dithered, a full block": dithered(*[0, 0, 0, 1] * 256, seed=20),
    "dithered, an incomplete block": dithered(*[0, 0, 0, 1] * 255, seed=20),
    "dithered, 2 bits": dithered(0, 1, -1, 2, 0, bits=2),
    "dithered, 9 bits": dithered(0, 256, -255, 0, 17, bits=9),
    "dithered, 32 bits": dithered(2**31, 1 - 2**31, 0, 0, 1, bits=32),
    "dithered, seed 0": dithered(0, 1, -1, 0, 2, seed=0),
    "dithered, largest seed": dithered(0, 1, -1, 0, 2, seed=HUGE),
    "dithered, step 0": dithered(0, 1, -1, 0, 2, step=floats(0.0)),
    "dithered, step -0": dithered(0, 1, -1, 0, 2, step=floats(-0.0)),
    "dithered, largest step": dithered(0, 1, 2, 0, -1, step=floats(1.1e38), bits=2),
    "dithered, float64": dithered(0, 1, -1, 0, 2, step=doubles(0.1), flags=DOUBLE),
    "dithered, stream at its longest": streamed(0, 1, -1, 0, 2, stream=WHOLE[:-1] + b"\1"),
    "dithered, largest start": streamed(0, stream=b"\xff\xff\xff\xfe"),
}
DITHERED_INVALID = {
    # header and grid
    **{f"dithered, width {bits}": replace(DITHERED_FRAME, bits=bits) for bits in (0, 1, 33, 255)},
    "dithered, 1 bit with nothing sent": dithered(0, 0, 0, bits=1),
    "dithered, refused": replace(DITHERED_FRAME, flags=REFUSED),
    "dithered, no coordinates": replace(DITHERED_FRAME, dimension=0),
    "dithered, no coordinates, no stream": dithered(),
    "dithered, huge": replace(DITHERED_FRAME, dimension=HUGE),
    "dithered, just above the limit": replace(dithered(0), dimension=2**28 + 1),
    **{f"dithered, bucket {n}": replace(DITHERED_FRAME, bucket=n) for n in (1, 2, 5, 6, HUGE)},
    "dithered read as fixed": replace(DITHERED_FRAME, kind=FIXED),
    "dithered read as coded": replace(DITHERED_FRAME, kind=CODED),
    "dithered read as dense": replace(DITHERED_FRAME, kind=DENSE),
    "dithered read as empty": replace(DITHERED_FRAME, kind=EMPTY),
    **{
        f"dithered, step {step}": dithered(0, 1, 0, step=floats(step))
        for step in (math.nan, math.inf, -math.inf, -0.5)
    },
    **{
        f"dithered, step double {step}": dithered(0, 1, 0, step=doubles(step), flags=DOUBLE)
        for step in (math.nan, math.inf, -0.5)
    },
    "dithered, low overflows": dithered(0, 1, 0, step=floats(3e38)),
    "dithered, top overflows": dithered(0, 1, 0, step=floats(1.2e38), bits=2),
    "dithered, double overflows": dithered(0, 1, 0, step=doubles(1e308), flags=DOUBLE),
    # list
    "listed after the end": dithered(0, 0, 0, 0, 0, sparsity=NONE, listed=[(64, 1)]),
    "last of the listed after the end": dithered(
        0, 0, 0, 0, 0, sparsity=NONE, listed=[(0, 1), (0, 1), (62, 1)]
    ),
    "gaps wrap 32 bits": dithered(0, 0, 0, 0, 0, sparsity=NONE, listed=[(0, 1), (HUGE - 1, 1)]),
    "gap of more than 32 bits": dithered(0, 0, 0, 0, 0, sparsity=NONE, listed=[(HUGE, 1)]),
    **{
        f"rank without a coordinate after {count} listed": dithered(
            0, 0, sparsity=NONE, listed=[*[(0, 1)] * count, (1, 1)]
        )
        for count in (0, 1)
    },
    # sent coordinates
    **{
        f"{how} distance {distance} of {bits} bits": dithered(
            0, distance, 0, bits=bits, sparsity=sparsity
        )
        for how, sparsity in (("candidate", 0), ("listed", NONE))
        for distance, bits in (
            (5, 3), (-4, 3), (3, 2), (-2, 2), (257, 9), (-256, 9), (2**31 + 1, 32),
            (-(2**31), 32), (HUGE, 32), (-HUGE, 32), (2**32, 32), (2**32, 3),
        )
    },
    # streams
    "a zero byte ends the stream": streamed(
        0, 1, -1, 0, 2, stream=DECISIONS.bytes() + b"\0"
    ),
    "a zero byte alone": streamed(0, stream=b"\0"),
    "a byte is left": streamed(0, 1, -1, 0, 2, stream=WHOLE + b"\1"),
    "a byte is left without decisions": dithered(0, sparsity=NONE, stream=b"\1\1\1\1\1"),
    "bytes are left": streamed(0, 1, -1, 0, 2, stream=WHOLE + b"\1" * 99),
    "stream starts with 2^32 - 1": streamed(0, stream=b"\xff\xff\xff\xff"),
    "2^32 - 1 without decisions": dithered(0, sparsity=NONE, stream=b"\xff\xff\xff\xff"),
}  # fmt: skip
VALID |= DITHERED_VALID
INVALID |= DITHERED_INVALID


# ---- relayed frames ----

REPLY = replace(FIXED_FRAME, round=1, refers_to=7).bytes()
OTHER_REPLY = dithered(0, 1, -1, flags=FRESH).bytes()
EMPTY_ROUND = relayed_round(9, 0.0)
ONE_REPLY = relayed_round(8, -0.5, (2.0, REPLY))
TWO_REPLIES = relayed_round(HUGE, 0.25, (1.0, REPLY), (1 / 3, OTHER_REPLY))


def relayed(*rounds, **header):
    return RawFrame(**{"kind": RELAYED, "dimension": 5, "body": b"".join(rounds), **header})


def relaying(frame):
    """Return a frame that relays a valid reply and then this one."""
    return relayed(relayed_round(8, -0.5, (2.0, REPLY), (1.0, frame)))


def with_scalars(**fields):
    return replace(FIXED_FRAME, count=1, scalars=scalar(b"loss"), **fields)


RELAYED_FRAME = relayed(ONE_REPLY, refers_to=8)
RELAYED_VALID = {
    "relayed": RELAYED_FRAME,
    "relayed, no replies": relayed(EMPTY_ROUND),
    "relayed, two replies": relayed(TWO_REPLIES),
    "relayed, rounds": relayed(ONE_REPLY, EMPTY_ROUND, TWO_REPLIES),
    "relayed, equal bases": relayed(ONE_REPLY, ONE_REPLY),
    "relayed, many rounds": relayed(*[EMPTY_ROUND] * 300),
    "relayed, many replies": relayed(relayed_round(8, -0.5, *[(2.0, REPLY)] * 300)),
    "relayed, long reply": relaying(RawFrame(kind=DENSE, body=bytes(20_000)).bytes()),
    "relayed, float64": replace(RELAYED_FRAME, flags=DOUBLE),
    "relayed, fresh": replace(RELAYED_FRAME, flags=FRESH),
    "relayed, scalars": replace(RELAYED_FRAME, ack=2, count=1, scalars=scalar(b"loss")),
    "relayed, no coordinates": replace(RELAYED_FRAME, dimension=0),
    "relayed, factors at the limits": relayed(
        relayed_round(1, -0.0, (5e-324, REPLY), (-1.7e308, REPLY), (0.0, REPLY))
    ),
    "relayed, all kinds": relayed(
        relayed_round(
            8, -0.5, (1.0, DENSE_FRAME.bytes()), (1.0, FIXED_DOUBLE.bytes()),
            (1.0, EXCEPTIONS_FRAME.bytes()), (1.0, OTHER_REPLY),
        )
    ),
    "relayed, reply with scalars": relaying(with_scalars(ack=3).bytes()),
    # bodies of replies, and what the body needs from the header, are checked when decoded
    "relayed, reply with an invalid body": relaying(INVALID["coded, no segments"].bytes()),
    "relayed, reply of invalid width": relaying(replace(FIXED_FRAME, bits=0).bytes()),
}  # fmt: skip
RELAYED_INVALID = {
    **{f"relayed, bucket {n}": replace(RELAYED_FRAME, bucket=n) for n in (1, 4, 5, HUGE)},
    "relayed, refused": replace(RELAYED_FRAME, flags=REFUSED),
    "relayed, refused and float64": replace(RELAYED_FRAME, flags=REFUSED | DOUBLE),
    "relayed, reply with a vector and refused": relaying(INVALID["refused but dense"].bytes()),
    "relayed, huge": replace(RELAYED_FRAME, dimension=HUGE),
    "relayed, no round": relayed(),
    "relayed, base 0": relayed(relayed_round(0, -0.5, (2.0, REPLY))),
    "relayed, last base 0": relayed(ONE_REPLY, relayed_round(0, 1.0)),
    "relayed, count cut off": relayed(EMPTY_ROUND[:-1]),
    "relayed, a reply is missing": relayed(relayed_round(8, -0.5, (2.0, REPLY), count=2)),
    "relayed, 2^32 - 1 replies": relayed(relayed_round(8, -0.5, count=HUGE)),
    "relayed, a reply is not counted": relayed(relayed_round(8, -0.5, (2.0, REPLY), count=0)),
    "relayed, count longer than necessary": relayed(EMPTY_ROUND[:-1] + b"\x80\x00"),
    "relayed, count of 33 bits": relayed(EMPTY_ROUND[:-1] + b"\x80\x80\x80\x80\x10"),
    **{
        f"relayed, length {length}": relayed(
            relayed_round(8, -0.5, count=1) + relayed_reply(2.0, REPLY, length)
        )
        for length in (0, 6, len(REPLY) - 1, len(REPLY) + 1, 2**31, HUGE)
    },
    "relayed, length longer than necessary": relayed(
        relayed_round(8, -0.5, count=1), doubles(2.0), bytes([len(REPLY) | 128, 0]), REPLY
    ),
    "relayed, length within the next round": relayed(
        relayed_round(8, -0.5, count=1), relayed_reply(2.0, REPLY, len(REPLY) + 4), EMPTY_ROUND
    ),
    "relayed, a byte after the last round": relayed(ONE_REPLY, b"\x00"),
    "relayed, bytes after the last round": relayed(ONE_REPLY, bytes(13)),
    "relayed, bits as in kind 4": relayed(b"\x03", ONE_REPLY),
    "relayed read as dithered": replace(RELAYED_FRAME, kind=DITHERED, bits=3),
    "relayed read as dense": replace(RELAYED_FRAME, kind=DENSE),
    "relayed read as empty": replace(RELAYED_FRAME, kind=EMPTY),
    "dense read as relayed": replace(DENSE_FRAME, kind=RELAYED),
    # replies
    "relayed, empty reply": relaying(SKIP.bytes()),
    "relayed, refused reply": relaying(replace(SKIP, flags=REFUSED).bytes()),
    "relayed, relayed reply": relaying(RELAYED_FRAME.bytes()),
    "relayed, reply of kind 6": relaying(replace(SKIP, kind=6).bytes()),
    "relayed, reply of version 2": relaying(replace(FIXED_FRAME, version=2).bytes()),
    "relayed, reply of another magic": relaying(replace(FIXED_FRAME, magic=0xB0).bytes()),
    "relayed, reply with a wrong checksum": relaying(REPLY[:-1] + bytes([REPLY[-1] ^ 1])),
    "relayed, damaged reply": relaying(REPLY[:-5] + bytes([REPLY[-5] ^ 1]) + REPLY[-4:]),
    "relayed, reply without a header": relaying(with_crc(b"\xa3\x02\x03")),
    "relayed, reply with the checksum 0 written": relaying(
        replace(FIXED_FRAME, refers=True).bytes()
    ),
    "relayed, reply with empty fields": relaying(replace(FIXED_FRAME, more=True).bytes()),
    "relayed, reply lacks a scalar": relaying(replace(DENSE_FRAME, body=b"", count=1).bytes()),
    "relayed, reply with a scalar that is NaN": relaying(
        replace(with_scalars(), scalars=scalar(b"loss", math.nan)).bytes()
    ),
}
for number in (math.nan, math.inf, -math.inf):
    RELAYED_INVALID |= {
        f"relayed, factor {number}": relayed(relayed_round(8, number, (2.0, REPLY))),
        f"relayed, last factor {number}": relayed(ONE_REPLY, relayed_round(9, number)),
        f"relayed, weight {number}": relayed(relayed_round(8, 1.0, (2.0, REPLY), (number, REPLY))),
    }
VALID |= RELAYED_VALID
INVALID |= RELAYED_INVALID
MAX_FLIPPED_BITS = 600
ENTROPY_CODED = CODED_VALID | DITHERED_VALID
ENTROPY_CODED_INVALID = [
    name for name in CODED_INVALID | DITHERED_INVALID if INVALID[name].dimension < 2**20
]


def small_frames():
    grid = torch.tensor([-1.0]), torch.tensor([0.5])
    rounds = (RelayedRound(8, -0.5, (2.0,), (REPLY,)),)
    return {
        "skip": Packet(3),
        "scalars": Packet(3, scalars={"drift": 0.5}, ack=2),
        "dense": Packet(3, Dense(torch.tensor([1.5, -2.0]))),
        "codes": Packet(3, Codes(torch.tensor([0, 1, 2, 3, 4]), 3, *grid, 5), {"loss": 1.0}),
        "coded": Packet(3, Codes(torch.tensor([3] * 199 + [4]), 3, *grid, 200)),
        "relayed": Packet(3, RelayedUploads(5, torch.float32, rounds), refers_to=8),
    }


@pytest.fixture(params=small_frames())
def frame(request):
    return pack(small_frames()[request.param])


def assert_refused(frame, dimension=None):
    with pytest.raises(WireError):
        unpack(frame, dimension)
    with pytest.raises(frame_reader.FrameError):
        frame_reader.read(frame, dimension)


@pytest.mark.parametrize("name", VALID)
def test_valid_frames_are_read(name):
    """Without this, invalid frames might be refused for the wrong reason."""
    frame = VALID[name].bytes()
    packet = unpack(frame)
    assert packet.round == 3
    assert_second_reader_agrees(frame, None, packet)
    again = pack(packet)
    assert content(unpack(again)) == content(packet)
    if VALID[name].kind not in (CODED, DITHERED):
        assert again == frame


@pytest.mark.parametrize("name", INVALID)
def test_invalid_frames_with_a_valid_checksum_are_refused(name):
    assert_refused(INVALID[name].bytes())


@pytest.mark.parametrize("name", ENTROPY_CODED_INVALID)
def test_invalid_frames_are_refused_with_their_own_dimension_expected(name):
    assert_refused(INVALID[name].bytes(), INVALID[name].dimension)


def test_an_expected_dimension_may_exceed_the_limit(monkeypatch):
    monkeypatch.setattr(envelope, "UNCHECKED_DIMENSION_LIMIT", 999)
    frame = coded(frame_builder.exceptions(1000, 3), dimension=1000).bytes()
    with pytest.raises(WireError, match="must know how many"):
        unpack(frame)
    assert unpack(frame, 1000).vector.codes.tolist() == [3] * 1000
    assert (
        unpack(coded(frame_builder.exceptions(999, 3), dimension=999).bytes()).vector.dimension
        == 999
    )
    with pytest.raises(WireError, match="must know how many"):
        unpack(dithered(*[0] * 1000).bytes())
    assert unpack(dithered(*[0] * 1000).bytes(), 1000).vector.codes.tolist() == [3] * 1000
    assert unpack(dithered(*[0] * 999).bytes()).vector.dimension == 999


def test_the_dither_of_the_cases_matches_the_documentation():
    words = [frame_builder.dither_word(i, SEED) for i in range(3)]
    assert words == [0x08F06599, 0xDE862BE2, 0xFC5D2F16]  # from docs/wire-format-dithered.md
    for seed, d in ((SEED, 5), (SEED, 500), (20, 1024), (HUGE, 3000)):
        blocks, dither = frame_builder.Blocks(seed, d), frame_reader.Dither(seed, d)
        slots = range(min(d, blocks.size))
        assert [*map(blocks.complement, slots)] == [*map(dither.complement, slots)]
        assert blocks.places(0)[: len(slots)] == [*map(dither.coordinate, slots)]
    few, many = (
        sum(map(frame_builder.Scales(sparsity).decides, map(blocks.complement, range(64))))
        for sparsity in (NONE, SOME)
    )
    assert few == 0 < many < 64


def test_a_dithered_frame_is_written_exactly_as_forged():
    rng = random.Random(1)
    for bits, d in ((2, 1), (2, 4000), (5, 300), (8, 40), (16, 40), (31, 99), (32, 99)):
        for _ in range(5):
            frame = dithered(*any_distances(rng, d, bits), seed=rng.getrandbits(32), bits=bits)
            assert pack(unpack(frame.bytes())) == frame.bytes()


def test_a_dithered_body_truncated_before_its_stream_is_refused():
    for length in range(4 + 4 + 1):
        assert_refused(replace(DITHERED_FRAME, body=DITHERED_FRAME.body[:length]).bytes())


@pytest.mark.parametrize("name", CODED_VALID)
def test_a_truncated_or_extended_coded_body_is_refused(name):
    raw_frame = CODED_VALID[name]
    for length in range(len(raw_frame.body)):
        assert_refused(replace(raw_frame, body=raw_frame.body[:length]).bytes())
    for more in (b"\x00", b"\xff", raw_frame.body):
        assert_refused(replace(raw_frame, body=raw_frame.body + more).bytes())


@pytest.mark.parametrize("name", ENTROPY_CODED)
def test_both_readers_agree_on_any_flipped_bit_of_a_coded_or_dithered_body(name):
    raw_frame = ENTROPY_CODED[name]
    bits = 8 * len(raw_frame.body)
    step = bits // MAX_FLIPPED_BITS | 1  # odd, so that every bit of a byte has its turn
    for place in range(0, bits, step):
        body = bytearray(raw_frame.body)
        body[place // 8] ^= 1 << place % 8
        frame = replace(raw_frame, body=bytes(body)).bytes()
        try:
            packet = unpack(frame)
        except WireError:
            packet = None
        assert_second_reader_agrees(frame, None, packet)


def test_a_relayed_body_may_end_only_after_a_round():
    rounds = ONE_REPLY, EMPTY_ROUND, TWO_REPLIES
    body = b"".join(rounds)
    ends = [*accumulate(map(len, rounds))]
    for length in range(len(body)):
        frame = relayed(body[:length]).bytes()
        if length in ends:
            assert len(unpack(frame).vector.rounds) == 1 + ends.index(length)
            assert_second_reader_agrees(frame, None, unpack(frame))
        else:
            assert_refused(frame)


def test_any_cut_of_a_relayed_reply_is_refused():
    for length in range(len(REPLY)):
        assert_refused(relaying(REPLY[:length]).bytes())


def test_both_readers_agree_on_any_flipped_bit_of_a_relayed_body():
    raw_frame, replies = relayed(TWO_REPLIES, ONE_REPLY), 3
    refused = 0
    for place in range(8 * len(raw_frame.body)):
        body = bytearray(raw_frame.body)
        body[place // 8] ^= 1 << place % 8
        frame = replace(raw_frame, body=bytes(body)).bytes()
        try:
            packet = unpack(frame)
        except WireError:
            packet = None
        refused += packet is None
        assert_second_reader_agrees(frame, None, packet)
    assert refused >= 8 * (2 * len(REPLY) + len(OTHER_REPLY) + replies)  # replies and lengths


@pytest.mark.parametrize("name", sorted(RELAYED_INVALID.keys() - {"relayed, huge"}))
def test_invalid_relayed_frames_are_refused_with_their_own_dimension_expected(name):
    assert_refused(INVALID[name].bytes(), INVALID[name].dimension)


def test_frame_that_this_process_has_sealed_may_relay_unchecked_replies():
    damaged = bytearray(REPLY)
    damaged[-5] ^= 1  # in the body, so that only the checksum shows it
    frame = relaying(bytes(damaged)).bytes()
    assert_refused(frame)
    assert unpack(frame, trusted=True).vector.rounds[0].frames == (REPLY, bytes(damaged))


@pytest.mark.parametrize(
    "rounds",
    [
        (),
        (RelayedRound(0, 1.0, (), ()),),
        (RelayedRound(8, math.nan, (), ()),),
        (RelayedRound(8, 1.0, (math.inf,), (REPLY,)),),
        (RelayedRound(8, 1.0, (1.0,), (b"",)),),
        (RelayedRound(8, 1.0, (1.0,), (SKIP.bytes(),)),),
        (RelayedRound(8, 1.0, (1.0,), (RELAYED_FRAME.bytes(),)),),
    ],
)
def test_invalid_relayed_uploads_are_not_written(rounds):
    with pytest.raises(WireError):
        pack(Packet(3, RelayedUploads(5, torch.float32, rounds)))


def test_relayed_uploads_are_not_a_vector():
    with pytest.raises(WireError, match="not a vector"):
        unpack(RELAYED_FRAME.bytes()).vector.decode()


@pytest.mark.parametrize("name", [n for n in RELAYED_VALID if RELAYED_VALID[n].dimension == 5])
def test_server_refuses_a_reply_that_relays_others(name):
    with pytest.raises(WireError, match="must not relay"):
        read_reply(RELAYED_VALID[name].bytes(), one_tensor(5), None, unpack)


def test_a_truncated_frame_is_refused(frame):
    for length in range(len(frame)):
        with pytest.raises(WireError):
            unpack(frame[:length])


def test_a_truncated_frame_with_a_new_checksum_is_refused(frame):
    content = frame[:-4]
    for length in range(len(content)):
        with pytest.raises(WireError):
            unpack(with_crc(content[:length]))


def test_a_frame_with_trailing_bytes_is_refused(frame):
    for more in (b"\x00", b"\x00" * 4, frame):
        with pytest.raises(WireError):
            unpack(frame + more)
        with pytest.raises(WireError):
            unpack(with_crc(frame[:-4] + more))


def test_any_flipped_bit_is_refused(frame):
    for place in range(8 * len(frame)):
        damaged = bytearray(frame)
        damaged[place // 8] ^= 1 << place % 8
        with pytest.raises(WireError):
            unpack(bytes(damaged))


def test_any_flipped_bit_with_a_new_checksum_is_refused_or_gives_a_valid_packet(frame):
    for place in range(8 * (len(frame) - 4)):
        flipped = bytearray(frame[:-4])
        flipped[place // 8] ^= 1 << place % 8
        raw_frame = with_crc(bytes(flipped))
        try:
            packet = unpack(raw_frame)
        except WireError:
            continue
        again = pack(packet)
        assert content(unpack(again)) == content(packet)
        if CODED not in (kind_of(again), kind_of(raw_frame)):
            assert again == raw_frame


@pytest.mark.parametrize(
    "name",
    [
        "dense float32",
        "dense float64",
        "fixed float32",
        "buckets",
        "exceptions",
        "zigzag wide",
        "dithered",
        "relayed",
    ],
)
@pytest.mark.parametrize("difference", [-1, 1, HUGE])
def test_a_dimension_other_than_expected_is_refused(name, difference):
    raw_frame = VALID[name]
    assert unpack(raw_frame.bytes(), raw_frame.dimension).vector.dimension == raw_frame.dimension
    with pytest.raises(WireError, match="are expected"):
        unpack(raw_frame.bytes(), raw_frame.dimension + difference)
