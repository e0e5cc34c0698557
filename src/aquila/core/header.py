"""Fields of the header of a frame: integers of variable length, and named numbers.

docs/wire-format.md specifies the layout.
"""

import math
import struct
from collections.abc import Mapping

from aquila.core.packet import WireError

MAX_NAME = 32

FIELD_LIMIT = 2**32
"""Integers of a header are below this."""

NUMBERED_NAMES = (
    "drift", "share", "rate", "boost", "loss", "lr_factor", "report_loss", "query_loss", "seed",
    "size", "bits", "levels", "full", "age", "tensors",
)  # fmt: skip
"""Names of scalars that a frame holds as a number. New names are appended."""

_FIRST_NUMBER = MAX_NAME + 1
"""Name field of a scalar with the first numbered name. Lower ones are lengths of names."""
_NUMBER_OF_NAME = {name: _FIRST_NUMBER + i for i, name in enumerate(NUMBERED_NAMES)}
_DOUBLE = struct.Struct("<d")
_SINGLE = struct.Struct("<f")
_MAX_SINGLE = (2 - 2**-23) * 2.0**127
_ONE_BYTE = [bytes([number]) for number in range(256)]


class HeaderReader:
    """Takes fields from a header, after the two bytes that every frame begins with.

    It can also take those of another part of a frame, which `part` names in errors.
    """

    def __init__(self, data: bytes, end: int, start: int = 2, part: str = "header") -> None:
        self.data, self.end, self.position, self.part = data, end, start, part

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        start, self.position = self.position, self.position + size
        if self.position > self.end:
            raise WireError(f"the {self.part} is cut short")
        return self.data[start : self.position]

    def varint(self) -> int:
        """Return an integer of seven bits per byte, the lowest first."""
        number = 0
        for shift in range(0, 35, 7):
            self.position += 1
            if self.position > self.end:
                raise WireError(f"the {self.part} is cut short")
            byte = self.data[self.position - 1]
            number |= (byte & 127) << shift
            if byte < 128:
                if number < FIELD_LIMIT and (byte > 0 or shift == 0):
                    return number
                break
        raise WireError(f"a {self.part} field is above 32 bits or longer than needed")

    def scalars(self, count: int) -> dict[str, float]:
        """Return so many named numbers."""
        scalars: dict[str, float] = {}
        for _ in range(count):
            (tag,) = self.take(1)
            name, layout = self._name(tag >> 1), _SINGLE if tag & 1 else _DOUBLE
            (value,) = layout.unpack(self.take(layout.size))
            _check_scalar(name, value)
            if not tag & 1 and _fits_single(value):
                raise WireError(f"scalar {name} is float64, although float32 holds its value")
            if name in scalars:
                raise WireError(f"scalar {name} occurs twice")
            scalars[name] = value
        return scalars

    def _name(self, field: int) -> str:
        if field >= _FIRST_NUMBER:
            number = field - _FIRST_NUMBER
            if number >= len(NUMBERED_NAMES):
                raise WireError(f"no name of a scalar has the number {number}")
            return NUMBERED_NAMES[number]
        name = bytes(self.take(field)).decode("ascii", errors="replace")
        if name in _NUMBER_OF_NAME:
            raise WireError(f"scalar {name} must be sent by its number")
        return name


def seal_varint(number: int) -> bytes:
    """Return an integer with seven bits per byte, the lowest first."""
    if number < 128:
        return _ONE_BYTE[number]
    parts = bytearray()
    while number >= 128:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def seal_scalars(scalars: Mapping[str, float]) -> bytes:
    """Return the number of scalars, then name and value of each."""
    if len(scalars) > 255:
        raise WireError(f"{len(scalars)} scalars; a frame holds at most 255")
    parts = [_ONE_BYTE[len(scalars)]]
    for name, value in scalars.items():
        _check_scalar(name, value)
        number = _NUMBER_OF_NAME.get(name, 0)
        single = _fits_single(value)
        parts.append(_ONE_BYTE[(number or len(name)) << 1 | single])
        if not number:
            parts.append(name.encode())
        parts.append((_SINGLE if single else _DOUBLE).pack(value))
    return b"".join(parts)


def _fits_single(value: float) -> bool:
    """Return whether float32 holds the value; both zeros fit."""
    return abs(value) <= _MAX_SINGLE and _SINGLE.unpack(_SINGLE.pack(value)) == (value,)


def _check_scalar(name: str, value: float) -> None:
    if name not in _NUMBER_OF_NAME and not (
        len(name) <= MAX_NAME and name.isascii() and name.isidentifier()
    ):
        raise WireError(
            f"{name[:MAX_NAME]!r} is not a valid name for a scalar; "
            f"use an ASCII identifier of at most {MAX_NAME} characters"
        )
    if not math.isfinite(value):
        raise WireError(f"scalar {name} is {value}; it must be finite")
