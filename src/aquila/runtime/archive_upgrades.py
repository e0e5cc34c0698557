"""Converts the archive of replies that a release with states of version 2 has written.

That release kept one file per device, `N.frames`, with all frames that the server applied. A frame
had a header of fixed size, and its checksum is the one that the server's state acknowledges. The
history of a device is complete if every checksum matches, the last frame is the acknowledged one,
and there is a frame for every upload in the records. That release began a lost file anew, so the
end of a file alone proves nothing. The old files stay, so that the old release can continue.
"""

import struct
import zlib
from collections.abc import Collection, Iterator, Sequence
from itertools import islice, takewhile
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


class _Old(NamedTuple):
    """The old file of a device, and what the server's state and records say about it."""

    path: Path
    ack: Ack
    uploads: Collection[int]
    round_number: int


def convert_archive(
    folder: Path,
    archive: FolderArchive,
    positions: Sequence[Position],
    acks: Sequence[Ack],
    uploads: Sequence[Collection[int]],
    round_number: int,
) -> tuple[Position, ...]:
    """Convert the histories of devices whose replies only the old files hold.

    Args:
        folder: The folder of the old files and of the archive.
        archive: Where the converted histories are stored.
        positions: Positions in the archive, one per device.
        acks: The newest applied reply of each device.
        uploads: Rounds with an upload of each device, from the records.
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
            old = _Old(path, acks[device], uploads[device], round_number)
            converted[device] = _convert(old, archive, device)
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


def _convert(old: _Old, archive: FolderArchive, device: int) -> Position:
    """Copy a device's frames since it last started to a new part."""
    start = _find_start(old)
    archive.begin(device, 0, b"")
    position = Position(0).after(b"")
    for frame in islice(_read_closed(old), start, None):
        entry = seal(frame.frame)
        archive.append(device, 0, entry)
        position = position.after(entry)
    return position


def _find_start(old: _Old) -> int:
    """Return the index of the frame with which a device last started; WireError if one lacks."""
    start, last, missing = 0, None, {r for r in old.uploads if r < old.round_number}
    for index, frame in enumerate(_read_closed(old)):
        last = frame.ack
        missing.discard(last.round)
        if frame.frame.flags & Flag.FRESH:
            start, missing = index, {r for r in missing if r > last.round}
    if last != old.ack:
        raise WireError(f"it does not end with the reply to round {old.ack.round}")
    if missing:
        raise WireError(f"it lacks the reply to round {min(missing)}")
    return start


def _read_closed(old: _Old) -> Iterator[_OldFrame]:
    """Yield the frames of closed rounds."""
    return takewhile(lambda frame: frame.ack.round < old.round_number, _read(old.path))


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
