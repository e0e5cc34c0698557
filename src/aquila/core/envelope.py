"""The envelope of a frame: header, scalars and checksum around a body of bytes.

The layout is written down in docs/wire-format.md.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from aquila.core.packet import NEVER, WireError
from aquila.native.checksum import crc32

MAGIC = b"AQLA"
VERSION = 1
MAX_NAME = 32

_HEADER = struct.Struct("<4s4B4IB")
_DOUBLE = struct.Struct("<d")
_CHECKSUM = struct.Struct("<I")
_KNOWN_FLAGS = 0b11


class Kind(IntEnum):
    """How the body of a frame is coded."""

    EMPTY = 0
    DENSE = 1
    FIXED = 2
    CODED = 3


class Flag(IntFlag):
    """Single bits of the header."""

    DOUBLE = 1
    """Values and grids are float64, not float32."""
    REFUSED = 2
    """The device refused to upload: its gradient was not finite."""


_KINDS = [kind.value for kind in Kind]


@dataclass(frozen=True)
class Frame:
    """A frame taken apart, its body still coded."""

    kind: Kind
    flags: Flag
    bits: int
    round: int
    ack: int
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


def demand(condition: bool, problem: str) -> None:
    """Raise WireError with the problem unless the condition holds."""
    if not condition:
        raise WireError(problem)


def seal(frame: Frame) -> bytes:
    """Turn a frame into bytes."""
    ack = frame.ack - NEVER
    for name, number in (
        ("round", frame.round), ("ack", ack), ("dimension", frame.dimension)
    ):  # fmt: skip
        demand(0 <= number < 2**32, f"{name} {number} does not fit the 32 bits a frame has for it")
    scalars = _seal_scalars(frame.scalars)
    header = _HEADER.pack(
        MAGIC, VERSION, frame.kind, frame.flags, frame.bits,
        frame.round, ack, frame.dimension, frame.bucket, len(frame.scalars),
    )  # fmt: skip
    checksum = crc32(frame.body, crc32(scalars, crc32(header)))
    return b"".join((header, scalars, frame.body, _CHECKSUM.pack(checksum)))


def parse(data: bytes, trusted: bool = False) -> Frame:
    """Check the envelope and take it apart; raise WireError if it is not sound.

    A frame that was sealed in this process may be `trusted` to match its checksum.
    """
    demand(len(data) >= _HEADER.size + _CHECKSUM.size, f"frame of {len(data)} bytes is cut short")
    magic, version, kind, flags, bits, round_, ack, dimension, bucket, count = _HEADER.unpack_from(
        data
    )
    demand(magic == MAGIC, "not a frame: it does not start with AQLA")
    demand(version == VERSION, f"frame of version {version}; this release reads version {VERSION}")
    content = memoryview(data)[: -_CHECKSUM.size]
    (checksum,) = _CHECKSUM.unpack_from(data, len(content))
    demand(trusted or crc32(content) == checksum, "checksum does not match: the frame is damaged")
    demand(kind in _KINDS, f"frame of kind {kind}; this release reads kinds {_KINDS}")
    demand(flags & ~_KNOWN_FLAGS == 0, f"frame has unknown flags {flags:#04x}")
    scalars, start = _parse_scalars(content, count)
    return Frame(
        Kind(kind), Flag(flags), bits, round_, ack + NEVER, dimension, bucket, scalars,
        content[start:],
    )  # fmt: skip


def _seal_scalars(scalars: Mapping[str, float]) -> bytes:
    demand(len(scalars) < 256, f"{len(scalars)} scalars; a frame holds at most 255")
    parts = []
    for name, value in scalars.items():
        _check_scalar(name, value)
        parts.append(bytes([len(name)]) + name.encode() + _DOUBLE.pack(value))
    return b"".join(parts)


def _parse_scalars(content: memoryview, count: int) -> tuple[dict[str, float], int]:
    scalars: dict[str, float] = {}
    at = _HEADER.size
    for _ in range(count):
        demand(at < len(content), "scalars are cut short")
        end = at + 1 + content[at]
        demand(end + _DOUBLE.size <= len(content), "scalars are cut short")
        name = bytes(content[at + 1 : end]).decode("ascii", errors="replace")
        (value,) = _DOUBLE.unpack_from(content, end)
        _check_scalar(name, value)
        demand(name not in scalars, f"scalar {name} is there twice")
        scalars[name] = value
        at = end + _DOUBLE.size
    return scalars, at


def _check_scalar(name: str, value: float) -> None:
    sound = len(name) <= MAX_NAME and name.isascii() and name.isidentifier()
    demand(sound, f"{name[:MAX_NAME]!r} is no name for a scalar")
    demand(math.isfinite(value), f"scalar {name} is {value}")
