"""The envelope of a frame: header, scalars and checksum around a body of bytes.

docs/wire-format.md specifies the layout.
"""

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from aquila.core.header import FIELD_LIMIT, HeaderReader, seal_scalars, seal_varint
from aquila.core.packet import NEVER, DimensionError, WireError
from aquila.native.checksum import crc32

MAGIC = 0xA0
"""High half of the first byte of every frame."""
VERSION = 3
"""Low half of the first byte."""

MIN_BYTES = 7
"""Size of the shortest frame: a skip of round 0 to 127 that refers to nothing."""

UNCHECKED_DIMENSION_LIMIT = 2**28
"""Largest dimension of a coded, dithered or relayed frame if the reader expects no particular one.

A valid frame of a few bytes can represent billions of equal codes.
"""

_FIRST = MAGIC | VERSION
_CHECKSUM = struct.Struct("<I")


class Kind(IntEnum):
    """How the body of a frame is coded."""

    EMPTY = 0
    DENSE = 1
    FIXED = 2
    CODED = 3
    DITHERED = 4
    RELAYED = 5


class Flag:
    """Flag bits of a frame. Plain integers, because testing an enumeration is slower."""

    DOUBLE = 1
    """Values and grids are float64, not float32."""
    REFUSED = 2
    """The device did not compute: its gradient was not finite, or it lacks the model it needs."""
    FRESH = 4
    """The device restarts from its initial state, although the server has applied its replies."""


_KINDS = list(Kind)
_KINDS_OF_CODES = (Kind.FIXED, Kind.CODED, Kind.DITHERED)
_KIND_BITS, _FLAG_BITS = 3, 3
_REFERS, _MORE = 64, 128
"""Bits of the second byte: refers_to follows; ack, bucket and scalars follow."""


class Frame(NamedTuple):
    """A parsed frame whose body is still encoded."""

    kind: Kind
    flags: int
    bits: int
    round: int
    ack: int
    refers_to: int
    dimension: int
    bucket: int
    scalars: Mapping[str, float]
    body: bytes | memoryview

    @property
    def body_bytes(self) -> int:
        """Size of the body, which holds the vector."""
        return len(self.body)

    @property
    def paper_bits(self) -> int:
        """The papers' count for this message: bits per coordinate times coordinates."""
        return self.bits * self.dimension


def require(condition: bool, message: str) -> None:
    """Raise WireError with the message unless the condition holds."""
    if not condition:
        raise WireError(message)


def seal(frame: Frame) -> bytes:
    """Return the bytes of a frame, with its checksum."""
    ack = frame.ack - NEVER
    numbers = frame.round, ack, frame.refers_to, frame.dimension, frame.bucket
    if min(numbers) < 0 or max(numbers) >= FIELD_LIMIT:
        bad = next(number for number in numbers if not 0 <= number < FIELD_LIMIT)
        raise WireError(f"{bad} does not fit a header field of 32 bits")
    refers, more = frame.refers_to > 0, bool(ack or frame.bucket or frame.scalars)
    second = frame.kind | frame.flags << _KIND_BITS | _REFERS * refers | _MORE * more
    header = bytearray((_FIRST, second))
    header += seal_varint(frame.round)
    if refers:
        header += _CHECKSUM.pack(frame.refers_to)
    if frame.kind is not Kind.EMPTY:
        header += seal_varint(frame.dimension)
    if frame.kind in _KINDS_OF_CODES:
        header.append(frame.bits)
    if more:
        header += seal_varint(ack) + seal_varint(frame.bucket) + seal_scalars(frame.scalars)
    checksum = crc32(header)
    if frame.body:
        checksum = crc32(frame.body, checksum)
    return b"".join((header, frame.body, _CHECKSUM.pack(checksum)))


def parse(data: bytes, trusted: bool = False) -> Frame:
    """Check and parse the envelope; raise WireError if it is invalid.

    `trusted` skips the checksum. Use it only for a frame that this process has sealed.
    """
    if len(data) < MIN_BYTES:
        raise WireError(f"frame of {len(data)} bytes is cut short")
    if not is_frame(data):
        require(data[0] & 0xF0 == MAGIC, f"not a frame: it starts with {data[0]:#04x}")
        version = data[0] & 0x0F
        raise WireError(f"frame of version {version}; this release reads only version {VERSION}")
    end = len(data) - _CHECKSUM.size
    if not trusted and crc32(memoryview(data)[:end]) != checksum_of(data):
        raise WireError("checksum does not match: the frame is damaged")
    reader = HeaderReader(data, end)
    kind, flags = kind_of(data), flags_of(data)
    if kind >= len(_KINDS):
        raise WireError(f"frame of kind {kind}; this release reads kinds 0 to {len(_KINDS) - 1}")
    round_, refers_to = reader.varint(), 0
    if data[1] & _REFERS:
        (refers_to,) = _CHECKSUM.unpack(reader.take(_CHECKSUM.size))
        require(refers_to > 0, "frame refers to the checksum 0, which must be left out")
    dimension = reader.varint() if kind != Kind.EMPTY else 0
    bits = (64 if flags & Flag.DOUBLE else 32) if kind == Kind.DENSE else 0
    if kind in _KINDS_OF_CODES:
        (bits,) = reader.take(1)
    ack, bucket, scalars = _parse_more(reader) if data[1] & _MORE else (0, 0, {})
    return Frame(
        _KINDS[kind], flags, bits, round_, ack + NEVER, refers_to, dimension, bucket, scalars,
        memoryview(data)[reader.position : end] if reader.position < end else b"",
    )  # fmt: skip


def require_dimension(frame: Frame, expected: int | range | None) -> None:
    """Raise WireError if a frame has a vector of an unexpected dimension."""
    if frame.kind is Kind.EMPTY or frame.dimension == expected:
        return
    if expected is None:
        compact = frame.kind in (Kind.CODED, Kind.DITHERED, Kind.RELAYED)
        if compact and frame.dimension > UNCHECKED_DIMENSION_LIMIT:
            raise WireError(
                f"{frame.kind.name.lower()} frame of {frame.dimension} coordinates; above "
                f"{UNCHECKED_DIMENSION_LIMIT} the reader must know how many to expect"
            )
        return
    allowed = expected if isinstance(expected, range) else range(expected, expected + 1)
    if frame.dimension not in allowed:
        number = f"{allowed[0]} to {allowed[-1]}" if len(allowed) > 1 else f"{allowed[0]}"
        raise DimensionError(
            f"frame holds {frame.dimension} coordinates where {number} are expected"
        )


def checksum_of(frame: bytes) -> int:
    """Return the checksum at the end of a frame, which identifies its content."""
    return int.from_bytes(frame[-_CHECKSUM.size :], "little")


def is_frame(data: bytes) -> bool:
    """Return whether the first byte is that of a frame of this version."""
    return data[0] == _FIRST


def kind_of(frame: bytes) -> int:
    """Return the kind of a valid frame."""
    return frame[1] & (1 << _KIND_BITS) - 1


def flags_of(frame: bytes) -> int:
    """Return the flags of a valid frame."""
    return frame[1] >> _KIND_BITS & (1 << _FLAG_BITS) - 1


def round_of(frame: bytes) -> int:
    """Return the round of a valid frame, or of its first `MIN_BYTES` bytes."""
    return HeaderReader(frame, len(frame)).varint()


def checksum_of_order(control: bytes, model: bytes) -> int:
    """Return the checksum of an order: the CRC-32 of the checksums of its two frames."""
    return crc32(control[-_CHECKSUM.size :] + model[-_CHECKSUM.size :])


def _parse_more(reader: HeaderReader) -> tuple[int, int, dict[str, float]]:
    """Return ack, bucket and scalars."""
    ack, bucket, (count,) = reader.varint(), reader.varint(), reader.take(1)
    require(bool(ack or bucket or count), "frame has empty fields that must be left out")
    return ack, bucket, reader.scalars(count)
