"""The envelope of a frame: header, scalars and checksum around a body of bytes.

docs/wire-format.md specifies the layout.
"""

import math
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from aquila.core.packet import NEVER, DimensionError, WireError
from aquila.native.checksum import crc32

MAGIC = 0xA0
"""High half of the first byte of every frame."""
VERSION = 3
"""Low half of the first byte."""
MAX_NAME = 32

MIN_BYTES = 7
"""Size of the shortest frame: a skip of round 0 to 127 that refers to nothing."""

UNCHECKED_DIMENSION_LIMIT = 2**28
"""Largest dimension of a coded or dithered frame if the reader expects no particular one.

A valid frame of a few bytes can represent billions of equal codes.
"""

NUMBERED_NAMES = (
    "drift", "share", "rate", "boost", "loss", "lr_factor", "report_loss", "query_loss", "seed",
    "size", "bits", "levels", "full", "age", "tensors",
)  # fmt: skip
"""Names of scalars that a frame holds as a number. New names are appended."""

_FIRST = MAGIC | VERSION
_FIRST_NUMBER = MAX_NAME + 1
"""Name field of a scalar with the first numbered name. Lower ones are lengths of names."""
_NUMBER_OF_NAME = {name: _FIRST_NUMBER + i for i, name in enumerate(NUMBERED_NAMES)}
_DOUBLE = struct.Struct("<d")
_SINGLE = struct.Struct("<f")
_CHECKSUM = struct.Struct("<I")
_MAX_SINGLE = (2 - 2**-23) * 2.0**127


class Kind(IntEnum):
    """How the body of a frame is coded."""

    EMPTY = 0
    DENSE = 1
    FIXED = 2
    CODED = 3
    DITHERED = 4


class Flag:
    """Flag bits of a frame. Plain integers, because testing an enumeration is slower."""

    DOUBLE = 1
    """Values and grids are float64, not float32."""
    REFUSED = 2
    """The device did not compute: its gradient was not finite, or it lacks the model it needs."""
    FRESH = 4
    """The device restarts from its initial state, although the server has applied its replies."""


_KINDS = list(Kind)
_LIMIT = 2**32
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
    if min(numbers) < 0 or max(numbers) >= _LIMIT:
        bad = next(number for number in numbers if not 0 <= number < _LIMIT)
        raise WireError(f"{bad} does not fit a header field of 32 bits")
    refers, more = frame.refers_to > 0, bool(ack or frame.bucket or frame.scalars)
    second = frame.kind | frame.flags << _KIND_BITS | _REFERS * refers | _MORE * more
    header = bytearray((_FIRST, second))
    header += _varint(frame.round)
    if refers:
        header += _CHECKSUM.pack(frame.refers_to)
    if frame.kind is not Kind.EMPTY:
        header += _varint(frame.dimension)
    if frame.kind >= Kind.FIXED:
        header.append(frame.bits)
    if more:
        header += _varint(ack) + _varint(frame.bucket) + _seal_scalars(frame.scalars)
    checksum = crc32(frame.body, crc32(bytes(header)))
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
    reader = _Reader(memoryview(data)[: -_CHECKSUM.size])
    if not trusted and crc32(reader.content) != checksum_of(data):
        raise WireError("checksum does not match: the frame is damaged")
    kind, flags = kind_of(data), flags_of(data)
    if kind >= len(_KINDS):
        raise WireError(f"frame of kind {kind}; this release reads kinds 0 to {len(_KINDS) - 1}")
    round_, refers_to = reader.varint(), 0
    if data[1] & _REFERS:
        (refers_to,) = _CHECKSUM.unpack(reader.take(_CHECKSUM.size))
        require(refers_to > 0, "frame refers to the checksum 0, which must be left out")
    dimension = reader.varint() if kind != Kind.EMPTY else 0
    bits = (64 if flags & Flag.DOUBLE else 32) if kind == Kind.DENSE else 0
    if kind >= Kind.FIXED:
        (bits,) = reader.take(1)
    ack, bucket, scalars = _parse_more(reader) if data[1] & _MORE else (0, 0, {})
    return Frame(
        _KINDS[kind], flags, bits, round_, ack + NEVER, refers_to, dimension, bucket, scalars,
        reader.content[reader.position :],
    )  # fmt: skip


def require_dimension(frame: Frame, expected: int | range | None) -> None:
    """Raise WireError if a frame has a vector of an unexpected dimension."""
    if expected is None:
        compact = frame.kind in (Kind.CODED, Kind.DITHERED)
        if compact and frame.dimension > UNCHECKED_DIMENSION_LIMIT:
            raise WireError(
                f"{frame.kind.name.lower()} frame of {frame.dimension} coordinates; above "
                f"{UNCHECKED_DIMENSION_LIMIT} the reader must know how many to expect"
            )
        return
    allowed = expected if isinstance(expected, range) else range(expected, expected + 1)
    if frame.dimension not in allowed and frame.kind is not Kind.EMPTY:
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
    return _Reader(memoryview(frame), 2).varint()


def checksum_of_order(control: bytes, model: bytes) -> int:
    """Return the checksum of an order: the CRC-32 of the checksums of its two frames."""
    return crc32(control[-_CHECKSUM.size :] + model[-_CHECKSUM.size :])


class _Reader:
    """Takes fields from the front of a header."""

    def __init__(self, content: memoryview, position: int = 2) -> None:
        self.content, self.position = content, position

    def take(self, size: int) -> memoryview:
        """Return the next bytes."""
        start, self.position = self.position, self.position + size
        if self.position > len(self.content):
            raise WireError("the header is cut short")
        return self.content[start : self.position]

    def varint(self) -> int:
        """Return an integer of seven bits per byte, the lowest first."""
        number = 0
        for shift in range(0, 35, 7):
            self.position += 1
            if self.position > len(self.content):
                raise WireError("the header is cut short")
            byte = self.content[self.position - 1]
            number |= (byte & 127) << shift
            if byte < 128:
                if number < _LIMIT and (byte > 0 or shift == 0):
                    return number
                break
        raise WireError("a header field is above 32 bits or longer than needed")


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number >= 128:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _seal_scalars(scalars: Mapping[str, float]) -> bytes:
    require(len(scalars) < 256, f"{len(scalars)} scalars; a frame holds at most 255")
    parts = [bytes([len(scalars)])]
    for name, value in scalars.items():
        _check_scalar(name, value)
        number = _NUMBER_OF_NAME.get(name, 0)
        single = _fits_single(value)
        parts.append(bytes([(number or len(name)) << 1 | single]))
        parts.append(b"" if number else name.encode())
        parts.append((_SINGLE if single else _DOUBLE).pack(value))
    return b"".join(parts)


def _parse_more(reader: _Reader) -> tuple[int, int, dict[str, float]]:
    """Return ack, bucket and scalars."""
    ack, bucket, (count,) = reader.varint(), reader.varint(), reader.take(1)
    require(bool(ack or bucket or count), "frame has empty fields that must be left out")
    scalars: dict[str, float] = {}
    for _ in range(count):
        (tag,) = reader.take(1)
        name, layout = _parse_name(reader, tag >> 1), _SINGLE if tag & 1 else _DOUBLE
        (value,) = layout.unpack(reader.take(layout.size))
        _check_scalar(name, value)
        if not tag & 1 and _fits_single(value):
            raise WireError(f"scalar {name} is float64, although float32 holds its value")
        if name in scalars:
            raise WireError(f"scalar {name} occurs twice")
        scalars[name] = value
    return ack, bucket, scalars


def _parse_name(reader: _Reader, field: int) -> str:
    if field >= _FIRST_NUMBER:
        number = field - _FIRST_NUMBER
        if number >= len(NUMBERED_NAMES):
            raise WireError(f"no name of a scalar has the number {number}")
        return NUMBERED_NAMES[number]
    name = bytes(reader.take(field)).decode("ascii", errors="replace")
    require(name not in _NUMBER_OF_NAME, f"scalar {name} must be sent by its number")
    return name


def _fits_single(value: float) -> bool:
    """Return whether float32 holds the value; both zeros fit."""
    return abs(value) <= _MAX_SINGLE and _SINGLE.unpack(_SINGLE.pack(value)) == (value,)


def _check_scalar(name: str, value: float) -> None:
    if not (len(name) <= MAX_NAME and name.isascii() and name.isidentifier()):
        raise WireError(
            f"{name[:MAX_NAME]!r} is not a valid name for a scalar; "
            f"use an ASCII identifier of at most {MAX_NAME} characters"
        )
    if not math.isfinite(value):
        raise WireError(f"scalar {name} is {value}; it must be finite")
