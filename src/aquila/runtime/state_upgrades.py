"""Steps that convert the arrays of a saved session from one version to the next.

A step is a function from arrays to arrays. It raises ValueError in one sentence if a part cannot be
converted. `UPGRADES` has the step from each version; a file of an older one takes several steps.

    2 to 3   Positions in the archive of replies and restarts per device are new. The frames of
             pending turns have another header. The positions of devices with replies are those of
             a lost archive, until `archive_upgrades` has converted it.
"""

from collections.abc import Callable

import numpy as np

from aquila.core.packet import NEVER, Packet
from aquila.core.state import Arrays
from aquila.core.wire import pack
from aquila.runtime.reply_archive import LOST_PART, NO_PART, Position
from aquila.runtime.restart_limit import Restarts

POSITIONS, RESTARTS = "positions", "restarts"
"""Arrays of a server: positions in the archive and recent restarts, one row per device."""

FRAME, ACK = "frame", "ack"
"""Arrays of a turn: the packed reply, and how the server would acknowledge it."""

TURNS = ("pending.", "stale_turn.")
"""Prefixes of the turns of a device."""

_OLD_FRAME = b"AQLA\x02"
_OLD_ROUND = slice(8, 12)
_CHECKSUM = slice(-4, None)


def upgrade_from_2(arrays: Arrays) -> Arrays:
    """Add what version 3 needs."""
    if POSITIONS in arrays:
        raise ValueError("it has version 2, but the content of a later one")
    converted = dict(arrays)
    for turn in TURNS:
        if f"{turn}{FRAME}" in arrays:
            converted |= _turn_from_2(arrays, turn)
    if "acks" in arrays:
        sent = [row[0] != NEVER for row in arrays["acks"].tolist()]
        positions = [Position(LOST_PART if s else NO_PART) for s in sent]
        converted[POSITIONS] = np.asarray(positions, np.int64).reshape(-1, 3)
        converted[RESTARTS] = np.asarray([Restarts()] * len(sent), np.int64).reshape(-1, 2)
    return converted


def _turn_from_2(arrays: Arrays, turn: str) -> Arrays:
    """Keep how the server acknowledges a turn. The frame itself is never sent again.

    A device repeats a frame only for the order that it answered, and a server of this version
    sends no such order.
    """
    frame = arrays[f"{turn}{FRAME}"].tobytes()
    if not frame.startswith(_OLD_FRAME):
        raise ValueError(f"its {turn}{FRAME} is not a frame of version 2")
    round_number, checksum = (
        int.from_bytes(frame[part], "little") for part in (_OLD_ROUND, _CHECKSUM)
    )
    skip = pack(Packet(round_number))
    return {
        f"{turn}{FRAME}": np.frombuffer(skip, np.uint8),
        f"{turn}{ACK}": np.asarray((round_number, checksum)),
    }


UPGRADES: dict[int, Callable[[Arrays], Arrays]] = {2: upgrade_from_2}
"""The step from each earlier version to the next one."""
