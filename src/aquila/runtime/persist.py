"""Sessions on disk, without pickle: what a device or a server needs to go on after a restart.

A file is a header (AQST, version, checksum of the rest) and an `.npz` archive. A file
that is damaged, of another version or of another session is refused, and the session stays as it
was; its owner may then go on as if there were none.
"""

import io
import struct
import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

from aquila.core.envelope import checksum_of
from aquila.core.method import Turn
from aquila.core.packet import NEVER
from aquila.core.state import Arrays, from_arrays, to_arrays
from aquila.core.wire import unpack
from aquila.runtime.files import atomic_write
from aquila.runtime.messages import Ack, PendingTurn
from aquila.runtime.model_downlink import references_from_arrays, references_to_arrays
from aquila.runtime.reference import ReferenceModel, with_checksum
from aquila.runtime.session import DeviceSession, ServerSession

__all__ = [
    "SavedStateError",
    "atomic_write",
    "device_to_bytes",
    "load_device",
    "load_server",
    "restore_device",
    "restore_server",
    "save_device",
    "save_server",
    "server_to_bytes",
]  # fmt: skip

MAGIC = b"AQST"
VERSION = 1
REFERENCE_NAMES = ("reference", "stale_reference")
"""Arrays of the models that a device holds, where it is sent differences."""

_HEADER = struct.Struct("<4sII")
_READ_ERRORS = (KeyError, IndexError, ValueError, TypeError, EOFError, BadZipFile, OverflowError)


class SavedStateError(ValueError):
    """A file that does not hold the state of this session."""


def device_to_bytes(session: DeviceSession) -> bytes:
    """Return all that a device must not lose."""
    state, last_round, last_ack, pending, stale_turn, *saved_references = session.snapshot()
    return _to_file(
        {
            "owner": np.asarray(_owner_of_device(session)),
            "last_ack": np.asarray(last_ack),
            "last_round": np.asarray(last_round),
            **to_arrays(state, "state."),
            **_turn_to_arrays(pending, "pending."),
            **_turn_to_arrays(stale_turn, "stale_turn."),
            **{
                name: m.theta.cpu().numpy()
                for name, m in zip(REFERENCE_NAMES, saved_references, strict=True)
                if m
            },
        }
    )


def restore_device(session: DeviceSession, content: bytes) -> None:
    """Continue from what `device_to_bytes` returned; SavedStateError, and no change, if unsound."""
    arrays = _from_file(content)
    try:
        _check_owner(arrays, _owner_of_device(session))
        template = session.state
        session.restore(
            from_arrays(template, arrays, "state."),
            int(arrays["last_round"]),
            _ack_from_row(arrays["last_ack"]),
            _turn_from_arrays(arrays, "pending.", template, session.dimension),
            _turn_from_arrays(arrays, "stale_turn.", template, session.dimension),
            *(_reference_from_array(arrays, name, session.dimension) for name in REFERENCE_NAMES),
        )
    except _READ_ERRORS as error:
        raise _unusable(error) from error


def server_to_bytes(session: ServerSession) -> bytes:
    """Return all that a server must not lose, as it was after the last closed round."""
    return _to_file(
        {
            "owner": np.asarray(_owner_of_server(session)),
            "round": np.asarray(session.round),
            "acks": np.asarray(session.acks).reshape(-1, 2),
            **to_arrays(session.state, "state."),
            **references_to_arrays(session.references),
        }
    )


def restore_server(session: ServerSession, content: bytes) -> None:
    """Continue from what `server_to_bytes` returned; SavedStateError, and no change, if unsound."""
    arrays = _from_file(content)
    try:
        _check_owner(arrays, _owner_of_server(session))
        state, round_number = from_arrays(session.state, arrays, "state."), int(arrays["round"])
        acks = [_ack_from_row(row) for row in arrays["acks"]]
        if len(acks) != len(session.acks) or not all(ack.round < round_number for ack in acks):
            raise ValueError("it acknowledges what cannot have been")
        references = references_from_arrays(arrays, session.fleet, session.theta)
        session.restore(state, round_number, acks, references)
    except _READ_ERRORS as error:
        raise _unusable(error) from error


def save_device(path: Path, session: DeviceSession) -> None:
    """Write a device's state, whole or not at all; only then may its reply leave."""
    atomic_write(path, device_to_bytes(session))


def load_device(path: Path, session: DeviceSession) -> bool:
    """Continue from a file and return True, or return False if there is none."""
    if not path.exists():
        return False
    restore_device(session, path.read_bytes())
    return True


def save_server(path: Path, session: ServerSession) -> None:
    """Write a server's state, whole or not at all."""
    atomic_write(path, server_to_bytes(session))


def load_server(path: Path, session: ServerSession) -> bool:
    """Continue from a file and return True, or return False if there is none."""
    if not path.exists():
        return False
    restore_server(session, path.read_bytes())
    return True


def _turn_to_arrays(pending: PendingTurn | None, prefix: str) -> Arrays:
    """Return the arrays of a turn; one whose reply was never packed has never left."""
    if pending is None or not pending.frame:
        return {}
    turn, arrays = pending.turn, {}
    arrays[f"{prefix}frame"] = np.frombuffer(pending.frame, np.uint8)
    arrays |= to_arrays(turn.state, f"{prefix}state.")
    if turn.fallback is not None:
        arrays |= to_arrays(turn.fallback, f"{prefix}fallback.")
    return arrays


def _turn_from_arrays(
    arrays: Arrays, prefix: str, template: Any, dimension: int
) -> PendingTurn | None:
    if f"{prefix}frame" not in arrays:
        return None
    frame = arrays[f"{prefix}frame"].tobytes()
    reply = unpack(frame, dimension)
    states = [
        from_arrays(template, arrays, start) if any(n.startswith(start) for n in arrays) else None
        for start in (f"{prefix}state.", f"{prefix}fallback.")
    ]
    turn = Turn(states[0] or template, reply, fallback=states[1])
    return PendingTurn(turn, Ack(reply.round, checksum_of(frame)), frame)


def _reference_from_array(arrays: Arrays, name: str, dimension: int) -> ReferenceModel | None:
    if name not in arrays:
        return None
    if arrays[name].shape != (dimension,):
        raise ValueError(f"the {name} model is {arrays[name].shape}, not {(dimension,)}")
    return with_checksum(torch.from_numpy(arrays[name].copy()))


def _ack_from_row(row: Any) -> Ack:
    round_number, checksum = (int(number) for number in row)
    if round_number < NEVER or not 0 <= checksum < 2**32:
        raise ValueError("it acknowledges what cannot have been")
    return Ack(round_number, checksum)


def _owner_of_device(session: DeviceSession) -> str:
    return f"device {session.device} of {session.half!r} with {session.dimension} coordinates"


def _owner_of_server(session: ServerSession) -> str:
    return f"server of {session.half!r} with {len(session.acks)} devices"


def _check_owner(arrays: Arrays, owner: str) -> None:
    if str(arrays["owner"]) != owner:
        raise ValueError(f"it is of {arrays['owner']}, not of {owner}")


def _to_file(arrays: Arrays) -> bytes:
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return _HEADER.pack(MAGIC, VERSION, zlib.crc32(content.getvalue())) + content.getvalue()


def _from_file(content: bytes) -> Arrays:
    if len(content) < _HEADER.size or content[:4] != MAGIC:
        raise SavedStateError("this is no saved state of a session: it does not start with AQST")
    _, version, checksum = _HEADER.unpack_from(content)
    if version != VERSION:
        raise SavedStateError(f"saved state of version {version}; this release reads {VERSION}")
    if zlib.crc32(memoryview(content)[_HEADER.size :]) != checksum:
        raise SavedStateError("saved state is damaged: its checksum does not match")
    try:
        with np.load(io.BytesIO(content[_HEADER.size :]), allow_pickle=False) as arrays:
            return dict(arrays)
    except _READ_ERRORS as error:
        raise _unusable(error) from error


def _unusable(error: Exception) -> SavedStateError:
    return SavedStateError(f"saved state cannot be used: {error}")
