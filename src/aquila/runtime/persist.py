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
from aquila.runtime.broadcast import references_from_arrays, references_to_arrays
from aquila.runtime.files import write_whole
from aquila.runtime.held import Held, named
from aquila.runtime.messages import Ack, Pending
from aquila.runtime.session import DeviceSession, ServerSession

__all__ = [
    "SavedStateError", "device_to_bytes", "load_device", "load_server", "restore_device",
    "restore_server", "save_device", "save_server", "server_to_bytes", "write_whole",
]  # fmt: skip

MAGIC = b"AQST"
VERSION = 1
MODELS = ("held", "held_aside")
"""Arrays of the models that a device holds, where it is sent differences."""

_HEADER = struct.Struct("<4sII")
_BROKEN = (KeyError, IndexError, ValueError, TypeError, EOFError, BadZipFile, OverflowError)


class SavedStateError(ValueError):
    """A file that does not hold the state of this session."""


def device_to_bytes(session: DeviceSession) -> bytes:
    """Return all that a device must not lose."""
    state, last_round, acked, pending, aside, *models = session.saved()
    return _sealed(
        {
            "owner": np.asarray(_owner_of_device(session)),
            "acked": np.asarray(acked),
            "last_round": np.asarray(last_round),
            **to_arrays(state, "state."),
            **_arrays_of_turn(pending, "pending."),
            **_arrays_of_turn(aside, "aside."),
            **{name: m.theta.cpu().numpy() for name, m in zip(MODELS, models, strict=True) if m},
        }
    )


def restore_device(session: DeviceSession, content: bytes) -> None:
    """Continue from what `device_to_bytes` returned; SavedStateError, and no change, if unsound."""
    arrays = _opened(content)
    try:
        _check_owner(arrays, _owner_of_device(session))
        template = session.state
        session.restore(
            from_arrays(template, arrays, "state."),
            int(arrays["last_round"]),
            _ack(arrays["acked"]),
            _turn(arrays, "pending.", template, session.dimension),
            _turn(arrays, "aside.", template, session.dimension),
            *(_model(arrays, name, session.dimension) for name in MODELS),
        )
    except _BROKEN as error:
        raise _unsound(error) from error


def server_to_bytes(session: ServerSession) -> bytes:
    """Return all that a server must not lose, as it was after the last closed round."""
    return _sealed(
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
    arrays = _opened(content)
    try:
        _check_owner(arrays, _owner_of_server(session))
        state, round = from_arrays(session.state, arrays, "state."), int(arrays["round"])
        acks = [_ack(row) for row in arrays["acks"]]
        if len(acks) != len(session.acks) or not all(ack.round < round for ack in acks):
            raise ValueError("it acknowledges what cannot have been")
        references = references_from_arrays(arrays, session.fleet, session.theta)
        session.restore(state, round, acks, references)
    except _BROKEN as error:
        raise _unsound(error) from error


def save_device(path: Path, session: DeviceSession) -> None:
    """Write a device's state, whole or not at all; only then may its reply leave."""
    write_whole(path, device_to_bytes(session))


def load_device(path: Path, session: DeviceSession) -> bool:
    """Continue from a file and return True, or return False if there is none."""
    if not path.exists():
        return False
    restore_device(session, path.read_bytes())
    return True


def save_server(path: Path, session: ServerSession) -> None:
    """Write a server's state, whole or not at all."""
    write_whole(path, server_to_bytes(session))


def load_server(path: Path, session: ServerSession) -> bool:
    """Continue from a file and return True, or return False if there is none."""
    if not path.exists():
        return False
    restore_server(session, path.read_bytes())
    return True


def _arrays_of_turn(pending: Pending | None, prefix: str) -> Arrays:
    """Return the arrays of a turn; one whose reply was never packed has never left."""
    if pending is None or not pending.frame:
        return {}
    turn, arrays = pending.turn, {}
    arrays[f"{prefix}frame"] = np.frombuffer(pending.frame, np.uint8)
    arrays |= to_arrays(turn.state, f"{prefix}state.")
    if turn.fallback is not None:
        arrays |= to_arrays(turn.fallback, f"{prefix}fallback.")
    return arrays


def _turn(arrays: Arrays, prefix: str, template: Any, dimension: int) -> Pending | None:
    if f"{prefix}frame" not in arrays:
        return None
    frame = arrays[f"{prefix}frame"].tobytes()
    reply = unpack(frame, dimension)
    states = [
        from_arrays(template, arrays, start) if any(n.startswith(start) for n in arrays) else None
        for start in (f"{prefix}state.", f"{prefix}fallback.")
    ]
    turn = Turn(states[0] or template, reply, fallback=states[1])
    return Pending(turn, Ack(reply.round, checksum_of(frame)), frame)


def _model(arrays: Arrays, name: str, dimension: int) -> Held | None:
    if name not in arrays:
        return None
    if arrays[name].shape != (dimension,):
        raise ValueError(f"the {name} model is {arrays[name].shape}, not {(dimension,)}")
    return named(torch.from_numpy(arrays[name].copy()))


def _ack(row: Any) -> Ack:
    round, reply = (int(number) for number in row)
    if round < NEVER or not 0 <= reply < 2**32:
        raise ValueError("it acknowledges what cannot have been")
    return Ack(round, reply)


def _owner_of_device(session: DeviceSession) -> str:
    return f"device {session.device} of {session.half!r} with {session.dimension} coordinates"


def _owner_of_server(session: ServerSession) -> str:
    return f"server of {session.half!r} with {len(session.acks)} devices"


def _check_owner(arrays: Arrays, owner: str) -> None:
    if str(arrays["owner"]) != owner:
        raise ValueError(f"it is of {arrays['owner']}, not of {owner}")


def _sealed(arrays: Arrays) -> bytes:
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return _HEADER.pack(MAGIC, VERSION, zlib.crc32(content.getvalue())) + content.getvalue()


def _opened(content: bytes) -> Arrays:
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
    except _BROKEN as error:
        raise _unsound(error) from error


def _unsound(error: Exception) -> SavedStateError:
    return SavedStateError(f"saved state cannot be used: {error}")
