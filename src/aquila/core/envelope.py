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

MAGIC = b"AQLA"
VERSION = 2
MAX_NAME = 32

UNCHECKED_DIMENSION_LIMIT = 2**28
"""Largest dimension of a coded or dithered frame if the reader expects no particular one.

A valid frame of a few bytes can represent billions of equal codes.
"""

_HEADER = struct.Struct("<4s4B5IB")
_DOUBLE = struct.Struct("<d")
_CHECKSUM = struct.Struct("<I")


class Kind(IntEnum):
    """How the body of a frame is coded."""

    EMPTY = 0
    DENSE = 1
    FIXED = 2
    CODED = 3
    DITHERED = 4


class Flag:
    """Flag bits of the header. Plain integers, because testing an enumeration is slower."""

    DOUBLE = 1
    """Values and grids are float64, not float32."""
    REFUSED = 2
    """The device did not compute: its gradient was not finite, or it lacks the model it needs."""
    FRESH = 4
    """The device restarts from its initial state, although the server has applied its replies."""


_KINDS = list(Kind)
_LIMIT = 2**32
_ALL_FLAGS = Flag.DOUBLE | Flag.REFUSED | Flag.FRESH


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
    for number in (frame.round, ack, frame.refers_to, frame.dimension):
        if not 0 <= number < _LIMIT:
            raise WireError(f"{number} does not fit a header field of 32 bits")
    scalars = _seal_scalars(frame.scalars) if frame.scalars else b""
    header = _HEADER.pack(
        MAGIC, VERSION, frame.kind, frame.flags, frame.bits,
        frame.round, ack, frame.refers_to, frame.dimension, frame.bucket, len(frame.scalars),
    )  # fmt: skip
    checksum = crc32(frame.body, crc32(header + scalars))
    return b"".join((header, scalars, frame.body, _CHECKSUM.pack(checksum)))


def parse(data: bytes, trusted: bool = False) -> Frame:
    """Check and parse the envelope; raise WireError if it is invalid.

    `trusted` skips the checksum. Use it only for a frame that this process has sealed.
    """
    if len(data) < _HEADER.size + _CHECKSUM.size:
        raise WireError(f"frame of {len(data)} bytes is cut short")
    (
        magic, version, kind, flags, bits, round_, ack, refers_to, dimension, bucket, count
    ) = _HEADER.unpack_from(data)  # fmt: skip
    require(magic == MAGIC, "not a frame: it does not start with AQLA")
    if version != VERSION:
        raise WireError(f"frame of version {version}; this release reads only version {VERSION}")
    content = memoryview(data)[: -_CHECKSUM.size]
    intact = trusted or crc32(content) == checksum_of(data)
    require(intact, "checksum does not match: the frame is damaged")
    if kind >= len(_KINDS):
        raise WireError(f"frame of kind {kind}; this release reads kinds 0 to {len(_KINDS) - 1}")
    if flags & ~_ALL_FLAGS:
        raise WireError(f"frame has unknown flags {flags:#04x}; 0x01 to 0x07 are known")
    scalars, start = _parse_scalars(content, count) if count else ({}, _HEADER.size)
    return Frame(
        _KINDS[kind], flags, bits, round_, ack + NEVER, refers_to, dimension, bucket, scalars,
        content[start:],
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


def kind_of(frame: bytes) -> int:
    """Return the kind of a valid frame."""
    return frame[5]


def flags_of(frame: bytes) -> int:
    """Return the flags of a valid frame."""
    return frame[6]


def round_of(frame: bytes) -> int:
    """Return the round of a valid frame."""
    return int.from_bytes(frame[8:12], "little")


def checksum_of_order(control: bytes, model: bytes) -> int:
    """Return the checksum of an order: the CRC-32 of the checksums of its two frames."""
    return crc32(control[-_CHECKSUM.size :] + model[-_CHECKSUM.size :])


def _seal_scalars(scalars: Mapping[str, float]) -> bytes:
    require(len(scalars) < 256, f"{len(scalars)} scalars; a frame holds at most 255")
    parts = []
    for name, value in scalars.items():
        _check_scalar(name, value)
        parts.append(bytes([len(name)]) + name.encode() + _DOUBLE.pack(value))
    return b"".join(parts)


def _parse_scalars(content: memoryview, count: int) -> tuple[dict[str, float], int]:
    scalars: dict[str, float] = {}
    position = _HEADER.size
    for _ in range(count):
        require(position < len(content), "scalars are cut short")
        end = position + 1 + content[position]
        require(end + _DOUBLE.size <= len(content), "scalars are cut short")
        name = bytes(content[position + 1 : end]).decode("ascii", errors="replace")
        (value,) = _DOUBLE.unpack_from(content, end)
        _check_scalar(name, value)
        require(name not in scalars, f"scalar {name} occurs twice")
        scalars[name] = value
        position = end + _DOUBLE.size
    return scalars, position


def _check_scalar(name: str, value: float) -> None:
    valid = len(name) <= MAX_NAME and name.isascii() and name.isidentifier()
    require(
        valid,
        f"{name[:MAX_NAME]!r} is not a valid name for a scalar; "
        f"use an ASCII identifier of at most {MAX_NAME} characters",
    )
    require(math.isfinite(value), f"scalar {name} is {value}; it must be finite")
