"""Sessions on disk, without pickle: what a device or a server needs to continue after a restart.

`state_file` has the format. Loading refuses a file that is damaged or belongs to another session,
and changes nothing. The caller may then continue as if the file did not exist. A file of an earlier
version is converted, and a copy of it stays.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from aquila.core.envelope import parse
from aquila.core.method import Turn
from aquila.core.packet import NEVER
from aquila.core.state import Arrays, from_arrays, to_arrays
from aquila.core.vector import Vector
from aquila.core.wire import unpack
from aquila.runtime.array_file import READ_ERRORS
from aquila.runtime.device_session import DeviceSession, DeviceSnapshot
from aquila.runtime.fleet_health import HEALTH_PREFIX, health_from_arrays
from aquila.runtime.messages import Ack, PendingTurn, ack_of
from aquila.runtime.reference import ReferenceModel, with_checksum
from aquila.runtime.reply_archive import Position
from aquila.runtime.restart_limit import Restarts
from aquila.runtime.saved_references import downlink_from_arrays, downlink_to_arrays
from aquila.runtime.server_session import ServerSession
from aquila.runtime.server_state import ServerSnapshot
from aquila.runtime.state_file import (
    SavedStateError,
    keep_earlier_version,
    read_state,
    save_state,
    state_to_bytes,
    unusable,
)
from aquila.runtime.state_upgrades import ACK, FRAME, POSITIONS, RESTARTS, TURNS

__all__ = ["SavedStateError"]

PENDING, STALE_TURN = TURNS
MODEL_ARRAYS = ("theta.", "moments.average.")
"""Names of the last model and of the average, in the arrays of a server."""


def device_to_bytes(session: DeviceSession) -> bytes:
    """Return everything that a device must save."""
    return state_to_bytes(_device_to_arrays(session))


def _device_to_arrays(session: DeviceSession) -> Arrays:
    saved = session.snapshot()
    return {
        "owner": np.asarray(_owner_of_device(session)),
        "last_ack": np.asarray(saved.last_ack),
        "last_round": np.asarray(saved.last_round),
        **to_arrays(saved.state, "state."),
        **_turn_to_arrays(saved.pending, PENDING),
        **_turn_to_arrays(saved.stale_turn, STALE_TURN),
        **_reference_to_arrays(saved.reference, "reference"),
        **_reference_to_arrays(saved.stale_reference, "stale_reference"),
    }


def restore_device(session: DeviceSession, content: bytes) -> None:
    """Continue from the result of `device_to_bytes`.

    Raises SavedStateError and changes nothing if the content is invalid.
    """
    session.restore(read_device(session, content))


def read_device(session: DeviceSession, content: bytes) -> DeviceSnapshot:
    """Return what `restore_device` would restore, without changing the session."""
    arrays = read_state(content)
    try:
        _check_owner(arrays, _owner_of_device(session))
        template, dimension = session.state, session.dimension
        return DeviceSnapshot(
            state=from_arrays(template, arrays, "state."),
            last_round=int(arrays["last_round"]),
            last_ack=_ack_from_row(arrays["last_ack"]),
            pending=_turn_from_arrays(arrays, PENDING, template),
            stale_turn=_turn_from_arrays(arrays, STALE_TURN, template),
            reference=_reference_from_arrays(arrays, "reference", dimension),
            stale_reference=_reference_from_arrays(arrays, "stale_reference", dimension),
        )
    except READ_ERRORS as error:
        raise unusable(error) from error


def server_to_bytes(session: ServerSession) -> bytes:
    """Return everything that a server must save, as of the last closed round."""
    return state_to_bytes(_server_to_arrays(session))


def _server_to_arrays(session: ServerSession) -> Arrays:
    saved = session.snapshot()
    return {
        "owner": np.asarray(_owner_of_server(session)),
        "round": np.asarray(saved.round),
        "acks": np.asarray(saved.acks).reshape(-1, 2),
        **to_arrays(saved.theta, "theta."),
        **to_arrays(saved.state, "state."),
        **to_arrays(saved.moments, "moments."),
        "losses": np.asarray(saved.losses),
        **to_arrays(saved.health, HEALTH_PREFIX),
        **downlink_to_arrays(saved),
        POSITIONS: np.asarray(saved.positions, np.int64).reshape(-1, 3),
        RESTARTS: np.asarray(saved.restarts, np.int64).reshape(-1, 2),
    }


def restore_server(session: ServerSession, content: bytes) -> None:
    """Continue from the result of `server_to_bytes`.

    Raises SavedStateError and changes nothing if the content is invalid.
    """
    session.restore(read_server(session, content))


def read_server(session: ServerSession, content: bytes) -> ServerSnapshot:
    """Return what `restore_server` would restore, without changing the session."""
    arrays = read_state(content)
    try:
        _check_owner(arrays, _owner_of_server(session))
        saved = ServerSnapshot(
            theta=from_arrays(session.theta, arrays, "theta."),
            state=from_arrays(session.state, arrays, "state."),
            moments=from_arrays(session.moments, arrays, "moments."),
            round=int(arrays["round"]),
            acks=tuple(_ack_from_row(row) for row in arrays["acks"]),
            losses=tuple(arrays["losses"].tolist()),
            health=health_from_arrays(arrays, len(session.acks)),
            positions=_positions_from_arrays(arrays),
            restarts=tuple(Restarts(*row) for row in arrays[RESTARTS].tolist()),
            **downlink_from_arrays(arrays, session.fleet, session.theta)._asdict(),
        )
        for part in (saved.acks, saved.positions, saved.restarts):
            if len(part) != len(session.acks) and (part or part is saved.acks):
                raise ValueError(f"it has {len(part)} devices, not {len(session.acks)}")
        if not all(ack.round < saved.round for ack in saved.acks):
            raise ValueError(f"it acknowledges a reply to round {saved.round} or later")
    except READ_ERRORS as error:
        raise unusable(error) from error
    return saved


def save_device(path: Path, session: DeviceSession) -> None:
    """Write a device's state atomically. The device may send its reply only afterwards."""
    save_state(path, _device_to_arrays(session))


def load_device(path: Path, session: DeviceSession) -> bool:
    """Continue from a file and return True, or return False if the file does not exist."""
    if not path.exists():
        return False
    restore_device(session, path.read_bytes())
    keep_earlier_version(path)
    return True


def save_server(path: Path, session: ServerSession) -> None:
    """Write a server's state atomically."""
    save_state(path, _server_to_arrays(session))


def load_server(path: Path, session: ServerSession) -> bool:
    """Continue from a file and return True, or return False if the file does not exist."""
    if not path.exists():
        return False
    restore_server(session, path.read_bytes())
    keep_earlier_version(path)
    return True


def read_server_model(path: Path) -> tuple[int, Vector]:
    """Return the number of rounds and the model in a server's file, whichever run it is of.

    The model is the average of the models, if the run has one.
    """
    arrays = read_state(path.read_bytes())
    try:
        return int(arrays["round"]), model_from_arrays(arrays)
    except READ_ERRORS as error:
        raise unusable(error) from error


def model_from_arrays(arrays: Arrays) -> Vector:
    """Return the model that a run evaluates and saves, from the arrays of its server."""
    last, average = MODEL_ARRAYS
    theta = torch.from_numpy(arrays[last].copy())
    if average not in arrays:
        return theta
    return torch.from_numpy(arrays[average].copy()).to(theta.dtype)


def read_server_positions(path: Path) -> tuple[Position, ...]:
    """Return the positions in the archive of a server's file, whichever run it is of."""
    arrays = read_state(path.read_bytes())
    try:
        return _positions_from_arrays(arrays)
    except READ_ERRORS as error:
        raise unusable(error) from error


def _positions_from_arrays(arrays: Arrays) -> tuple[Position, ...]:
    return tuple(Position(*row) for row in arrays[POSITIONS].tolist())


def _turn_to_arrays(pending: PendingTurn | None, prefix: str) -> Arrays:
    """Return the arrays of a turn. A turn without a frame was never sent, so it is not saved."""
    if pending is None or not pending.frame:
        return {}
    turn = pending.turn
    arrays = {
        f"{prefix}{FRAME}": np.frombuffer(pending.frame, np.uint8),
        f"{prefix}{ACK}": np.asarray(pending.ack),
        **to_arrays(turn.state, f"{prefix}state."),
    }
    if turn.fallback is not None:
        arrays |= to_arrays(turn.fallback, f"{prefix}fallback.")
    return arrays


def _turn_from_arrays(arrays: Arrays, prefix: str, template: Any) -> PendingTurn | None:
    if f"{prefix}{FRAME}" not in arrays:
        return None
    frame = arrays[f"{prefix}{FRAME}"].tobytes()
    reply = unpack(frame, parse(frame).dimension)
    state, fallback = (
        from_arrays(template, arrays, start) if any(n.startswith(start) for n in arrays) else None
        for start in (f"{prefix}state.", f"{prefix}fallback.")
    )
    # a state without fields has no arrays; the template is equal to it
    turn = Turn(template if state is None else state, reply, fallback=fallback)
    saved_ack = arrays.get(f"{prefix}{ACK}")
    ack = ack_of(reply, frame) if saved_ack is None else _ack_from_row(saved_ack)
    return PendingTurn(turn, ack, frame)


def _reference_to_arrays(model: ReferenceModel | None, name: str) -> Arrays:
    return {} if model is None else {name: model.theta.cpu().numpy()}


def _reference_from_arrays(arrays: Arrays, name: str, dimension: int) -> ReferenceModel | None:
    if name not in arrays:
        return None
    if arrays[name].shape != (dimension,):
        raise ValueError(f"its {name} has shape {arrays[name].shape}, not {(dimension,)}")
    return with_checksum(torch.from_numpy(arrays[name].copy()))


def _ack_from_row(row: Any) -> Ack:
    round_number, checksum = (int(number) for number in row)
    if round_number < NEVER or not 0 <= checksum < 2**32:
        raise ValueError(f"round {round_number} with checksum {checksum} is not an acknowledgement")
    return Ack(round_number, checksum)


def _owner_of_device(session: DeviceSession) -> str:
    return f"device {session.device} of {session.half!r} with {session.dimension} coordinates"


def _owner_of_server(session: ServerSession) -> str:
    return f"server of {session.half!r} with {len(session.acks)} devices"


def _check_owner(arrays: Arrays, owner: str) -> None:
    if str(arrays["owner"]) != owner:
        raise ValueError(f"it belongs to {arrays['owner']}, not to {owner}")
