"""Converts the archive of replies that a release with states of version 2 has written.

That release kept one file per device, `N.frames`, with all frames that the server applied. A frame
had a header of fixed size, and its checksum is the one that the server's state acknowledges. The
history of a device is complete if every checksum matches and the last frame is the acknowledged
one. The old files stay, so that the old release can continue.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from logging import getLogger
from pathlib import Path
from typing import NamedTuple

from aquila.core.envelope import Flag, Frame, Kind, seal
from aquila.core.packet import NEVER, WireError
from aquila.runtime.messages import Ack
from aquila.runtime.reply_archive import LOST_PART, FolderArchive, Position, scan_entries

_HEADER = struct.Struct("<4s4B5IB")
"""Magic, version, kind, flags, bits, round, ack, refers_to, dimension, bucket, scalars."""
_START = b"AQLA\x02"
_DOUBLE = struct.Struct("<d")
_CHECKSUM_BYTES = 4
_LOG = getLogger("aquila")


class _OldFrame(NamedTuple):
    """A frame of version 2: how the server acknowledged it, and its content."""

    ack: Ack
    frame: Frame


def convert_archive(
    folder: Path,
    archive: FolderArchive,
    positions: Sequence[Position],
    acks: Sequence[Ack],
    round_number: int,
) -> tuple[Position, ...]:
    """Convert the histories of devices whose replies only the old files hold.

    Args:
        folder: The folder of the old files and of the archive.
        archive: Where the converted histories are stored.
        positions: Positions in the archive, one per device.
        acks: The newest applied reply of each device.
        round_number: The next round of the server. Old frames of later rounds do not count.

    Returns:
        The positions after the conversion. A history that cannot be converted stays lost, and the
        log says why.
    """
    converted = list(positions)
    for device, position in enumerate(positions):
        path = folder / f"{device}.frames"
        if position.part != LOST_PART or not path.exists():
            continue
        try:
            converted[device] = _convert(path, archive, device, acks[device], round_number)
        except WireError as error:
            _LOG.warning(
                "the old archive of device %d cannot be converted: %s; the server refuses restarts "
                "of this device, so keep a backup of the device's state, or finish the run with "
                "the old release", device, error,
            )  # fmt: skip
    archive.sync()
    if done := [d for d, position in enumerate(converted) if position != positions[d]]:
        _LOG.warning("converted the old archive of devices %s", ", ".join(map(str, done)))
    return tuple(converted)


def _convert(
    path: Path, archive: FolderArchive, device: int, ack: Ack, round_number: int
) -> Position:
    """Copy a device's frames since it last started to a new part."""
    start, last = 0, None
    for index, old in enumerate(_read(path)):
        if old.ack.round >= round_number:
            break
        start = index if old.frame.flags & Flag.FRESH else start
        last = old.ack
    if last != ack:
        raise WireError(f"it does not end with the reply to round {ack.round}")
    archive.begin(device, 0, b"")
    position = Position(0).after(b"")
    for index, old in enumerate(_read(path)):
        if old.ack.round >= round_number:
            break
        if index >= start:
            entry = seal(old.frame)
            archive.append(device, 0, entry)
            position = position.after(entry)
    return position


def _read(path: Path) -> Iterator[_OldFrame]:
    """Yield the complete frames of a file one by one; WireError if one is damaged.

    A crash may have left an incomplete frame at the end, of a round that was not closed.
    """
    with path.open("rb") as file:
        for offset, length in scan_entries(file):
            file.seek(offset)
            yield _parse(file.read(length))


def _parse(data: bytes) -> _OldFrame:
    """Return a frame of version 2, whose checksum must match."""
    content, checksum = data[:-_CHECKSUM_BYTES], int.from_bytes(data[-_CHECKSUM_BYTES:], "little")
    is_frame = len(content) >= _HEADER.size and data.startswith(_START)
    if not is_frame or zlib.crc32(content) != checksum:
        raise WireError("a frame in it is damaged")
    _, _, kind, flags, bits, round_number, ack, refers_to, dimension, bucket, count = (
        _HEADER.unpack_from(content)
    )
    if kind >= Kind.DITHERED:
        raise WireError("this release cannot read its dithered frames")
    scalars, position = {}, _HEADER.size
    for _ in range(count):
        name = content[position + 1 : position + 1 + content[position]]
        position += 1 + len(name)
        (scalars[name.decode("ascii")],) = _DOUBLE.unpack_from(content, position)
        position += _DOUBLE.size
    frame = Frame(
        Kind(kind), flags, bits, round_number, ack + NEVER, refers_to, dimension, bucket, scalars,
        content[position:],
    )  # fmt: skip
    return _OldFrame(Ack(round_number, checksum), frame)
