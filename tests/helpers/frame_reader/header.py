"""Headers and scalars: docs/wire-format.md."""

import re
import zlib
from dataclasses import dataclass

from helpers.frame_reader.source import Source, check, rounded

EMPTY, DENSE, FIXED, CODED, DITHERED, RELAYED = range(6)
KINDS_WITH_BITS = (FIXED, CODED, DITHERED)
DOUBLE, REFUSED, FRESH = 1, 2, 4
CHECKSUM = 4
NUMBERED_NAMES = [
    "drift", "share", "rate", "boost", "loss", "lr_factor", "report_loss", "query_loss", "seed",
    "size", "bits", "levels", "full", "age", "tensors",
]  # fmt: skip
NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{0,31}")


@dataclass(frozen=True)
class Header:
    """The fields of a header; absent ones are 0."""

    kind: int
    flags: int
    round: int
    refers_to: int
    dimension: int
    bits: int
    ack: int
    bucket: int
    scalars: dict[str, float]


def read_header(frame):
    """Return the header of a frame and its body, after the rules 1 to 5."""
    check(len(frame) >= 7 and frame[0] == 0xA3, "not a frame of version 3")
    check(zlib.crc32(frame[:-CHECKSUM]) == int.from_bytes(frame[-CHECKSUM:], "little"), "damaged")
    source = Source(frame[1:-CHECKSUM])
    kind, flags, refers, more = (source.bits(n) for n in (3, 3, 1, 1))
    check(kind <= RELAYED, "unknown kind")
    round_ = source.varint()
    refers_to = source.bits(32) if refers else 0
    check(refers_to > 0 or not refers, "a checksum of 0 is written")
    dimension = source.varint() if kind != EMPTY else 0
    bits = source.byte() if kind in KINDS_WITH_BITS else 0
    ack, bucket, scalars = read_more(source) if more else (0, 0, {})
    return Header(kind, flags, round_, refers_to, dimension, bits, ack, bucket, scalars), source


def read_more(source):
    """Return ack, bucket and the scalars."""
    ack, bucket, count = source.varint(), source.varint(), source.byte()
    check(ack or bucket or count, "fields that say nothing")
    scalars = {}
    for _ in range(count):
        single, field = source.bits(1), source.bits(7)
        name = read_name(source, field)
        check(name not in scalars, "a scalar occurs twice")
        (value,) = source.floats(1, "f" if single else "d")
        check(single or rounded(value, "f") != value, "a float64 where float32 holds the value")
        scalars[name] = value
    return ack, bucket, scalars


def read_name(source, field):
    if field > 32:
        check(field - 33 < len(NUMBERED_NAMES), "an unknown number of a name")
        return NUMBERED_NAMES[field - 33]
    name = source.bytes(field)
    check(NAME.fullmatch(name) is not None, "an invalid name of a scalar")
    check(name.decode() not in NUMBERED_NAMES, "a name that has a number")
    return name.decode()
