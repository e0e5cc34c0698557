"""The envelope of a frame: header, scalars and checksum around a body of bytes.

The layout is written down in docs/wire-format.md.
"""

import math
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from aquila.core.packet import NEVER, WireError
from aquila.native.checksum import crc32

MAGIC = b"AQLA"
VERSION = 2
MAX_NAME = 32

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
    """Single bits of the header; plain numbers, which are quicker to test than an enumeration."""

    DOUBLE = 1
    """Values and grids are float64, not float32."""
    REFUSED = 2
    """The device refused to upload: its gradient was not finite."""
    FRESH = 4
    """The device starts from its initial state, though the server has applied replies of it."""


_KINDS = list(Kind)
_LIMIT = 2**32
_ALL_FLAGS = Flag.DOUBLE | Flag.REFUSED | Flag.FRESH


class Frame(NamedTuple):
    """A frame taken apart, its body still coded."""

    kind: Kind
    flags: int
    bits: int
    round: int
    ack: int
    answers: int
    dimension: int
    bucket: int
    scalars: Mapping[str, float]
    body: bytes | memoryview

    @property
    def body_bytes(self) -> int:
        """Bytes of the vector itself."""
        return len(self.body)

    @property
    def paper_bits(self) -> int:
        """What the papers count for this message: bits a coordinate times coordinates."""
        return self.bits * self.dimension


def require(condition: bool, message: str) -> None:
    """Raise WireError with the problem unless the condition holds."""
    if not condition:
        raise WireError(message)


def seal(frame: Frame) -> bytes:
    """Turn a frame into bytes."""
    ack = frame.ack - NEVER
    for number in (frame.round, ack, frame.answers, frame.dimension):
        if not 0 <= number < _LIMIT:
            raise WireError(f"{number} does not fit the 32 bits that a frame has for it")
    scalars = _seal_scalars(frame.scalars) if frame.scalars else b""
    header = _HEADER.pack(
        MAGIC, VERSION, frame.kind, frame.flags, frame.bits,
        frame.round, ack, frame.answers, frame.dimension, frame.bucket, len(frame.scalars),
    )  # fmt: skip
    checksum = crc32(frame.body, crc32(header + scalars))
    return b"".join((header, scalars, frame.body, _CHECKSUM.pack(checksum)))


def parse(data: bytes, trusted: bool = False) -> Frame:
    """Check the envelope and take it apart; raise WireError if it is not sound.

    A frame that was sealed in this process may be `trusted` to match its checksum.
    """
    if len(data) < _HEADER.size + _CHECKSUM.size:
        raise WireError(f"frame of {len(data)} bytes is cut short")
    (
        magic, version, kind, flags, bits, round_, ack, answers, dimension, bucket, count
    ) = _HEADER.unpack_from(data)  # fmt: skip
    require(magic == MAGIC, "not a frame: it does not start with AQLA")
    if version != VERSION:
        raise WireError(f"frame of version {version}; this release reads version {VERSION}")
    content = memoryview(data)[: -_CHECKSUM.size]
    sound = trusted or crc32(content) == checksum_of(data)
    require(sound, "checksum does not match: the frame is damaged")
    if kind >= len(_KINDS):
        raise WireError(f"frame of kind {kind}; this release reads kinds 0 to {len(_KINDS) - 1}")
    if flags & ~_ALL_FLAGS:
        raise WireError(f"frame has unknown flags {flags:#04x}")
    scalars, start = _parse_scalars(content, count) if count else ({}, _HEADER.size)
    return Frame(
        _KINDS[kind], flags, bits, round_, ack + NEVER, answers, dimension, bucket, scalars,
        content[start:],
    )  # fmt: skip


def checksum_of(frame: bytes) -> int:
    """Return the checksum that a frame carries, which stands for its content."""
    return int.from_bytes(frame[-_CHECKSUM.size :], "little")


def kind_of(frame: bytes) -> int:
    """Return the kind of a frame that is known to be sound."""
    return frame[5]


def flags_of(frame: bytes) -> int:
    """Return the flags of a frame that is known to be sound."""
    return frame[6]


def round_of(frame: bytes) -> int:
    """Return the round of a frame that is known to be sound."""
    return int.from_bytes(frame[8:12], "little")


def checksum_of_order(control: bytes, model: bytes) -> int:
    """Return what stands for the content of an order: a checksum over those of its two frames."""
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
    at = _HEADER.size
    for _ in range(count):
        require(at < len(content), "scalars are cut short")
        end = at + 1 + content[at]
        require(end + _DOUBLE.size <= len(content), "scalars are cut short")
        name = bytes(content[at + 1 : end]).decode("ascii", errors="replace")
        (value,) = _DOUBLE.unpack_from(content, end)
        _check_scalar(name, value)
        require(name not in scalars, f"scalar {name} is there twice")
        scalars[name] = value
        at = end + _DOUBLE.size
    return scalars, at


def _check_scalar(name: str, value: float) -> None:
    sound = len(name) <= MAX_NAME and name.isascii() and name.isidentifier()
    require(sound, f"{name[:MAX_NAME]!r} is no name for a scalar")
    require(math.isfinite(value), f"scalar {name} is {value}")
