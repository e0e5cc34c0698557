"""Checkpoints of a simulation, written atomically and without pickle.

A checkpoint is an `.npz` file. `acks` has one row per device: round and checksum of its last
applied reply. The states of devices that have had a turn are stacked, one array per field. They
are written and read one device at a time, because all of them may not fit into memory.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from zipfile import ZipFile

import numpy as np
import torch
from numpy.lib import format as npy

from aquila.core.fleet import DeviceId
from aquila.core.packet import NEVER
from aquila.core.state import Arrays, from_arrays, to_arrays
from aquila.core.vector import Vector
from aquila.runtime.array_file import (
    READ_ERRORS,
    array_names,
    open_arrays,
    read_array,
    read_rows,
)
from aquila.runtime.device_session import DeviceSession, DeviceSnapshot
from aquila.runtime.files import atomic_file
from aquila.runtime.fingerprint import fingerprint_differences
from aquila.runtime.fleet_health import HEALTH_PREFIX, health_from_arrays
from aquila.runtime.messages import Ack
from aquila.runtime.model_downlink import References
from aquila.runtime.persist import MODEL_ARRAYS, model_from_arrays
from aquila.runtime.reference import ReferenceModel, with_checksum
from aquila.runtime.saved_references import (
    SERVER_DOWNLINK,
    downlink_from_arrays,
    downlink_to_arrays,
)
from aquila.runtime.server_session import ServerSession
from aquila.runtime.server_state import ServerSnapshot

MODELS_PREFIX = "device_models."
"""Prefix of the array names of the reference models that devices hold."""
SERVER_PREFIXES = (
    "theta.", "server.", "moments.", HEALTH_PREFIX, MODELS_PREFIX, *SERVER_DOWNLINK,
)  # fmt: skip
"""Prefixes of the names of arrays that are not states of devices."""

if TYPE_CHECKING:
    from aquila.sim.loop import Simulation

StateLayout = tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]
"""Name, shape and dtype of every array of a state. States with the same layout are stacked."""


def save_checkpoint(path: Path, simulation: "Simulation") -> None:
    """Save the simulation as of the last closed round."""
    server, sessions = simulation.server, simulation.devices
    saved = server.snapshot()
    for session in sessions:
        session.discard_turn(saved.round)
        session.apply_ack(saved.acks[session.device])
    arrays: Arrays = {
        "fingerprint": np.asarray(simulation.fingerprint),
        "round": np.asarray(saved.round),
        "acks": np.asarray(saved.acks),
        "last_rounds": np.asarray([session.last_round for session in sessions]),
        **to_arrays(saved.theta, "theta."),
        **to_arrays(saved.state, "server."),
        **to_arrays(saved.moments, "moments."),
        "losses": np.asarray(saved.losses),
        **to_arrays(saved.health, HEALTH_PREFIX),
        **downlink_to_arrays(saved),
        **_models_to_arrays(sessions, saved.references),
    }
    with atomic_file(path, private=True) as file, ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with _new_member(archive, name) as member:
                npy.write_array(member, array, allow_pickle=False)
        _save_states(archive, [s for s in sessions if s.last_round != NEVER])


def load_checkpoint(path: Path, simulation: "Simulation") -> None:
    """Continue a new simulation from a file; raise ValueError if the file is of another run."""
    try:
        with open_arrays(path) as archive:
            saved = str(read_array(archive, "fingerprint"))
    except (OSError, *READ_ERRORS) as error:
        raise ValueError(f"{path} is not a checkpoint: {error}") from error
    if differences := fingerprint_differences(saved, simulation.fingerprint):
        raise ValueError(
            f"{path} is a checkpoint of another run and cannot be resumed: {'; '.join(differences)}"
        )
    try:
        with open_arrays(path) as archive:
            _restore(archive, simulation)
    except READ_ERRORS as error:
        raise ValueError(f"{path} is not a complete checkpoint: {error}") from error


def read_checkpoint_model(path: Path) -> tuple[int, Vector]:
    """Return the number of rounds and the model of a checkpoint, without the run it is of.

    The model is the average of the models, if the run has one.
    """
    try:
        with open_arrays(path) as archive:
            saved = set(array_names(archive)).intersection(MODEL_ARRAYS)
            arrays = {name: read_array(archive, name) for name in saved}
            return int(read_array(archive, "round")), model_from_arrays(arrays)
    except (OSError, *READ_ERRORS) as error:
        raise ValueError(f"{path} is not a checkpoint: {error}") from error


def _restore(archive: ZipFile, simulation: "Simulation") -> None:
    server, sessions = simulation.server, simulation.devices
    round_number = int(read_array(archive, "round"))
    acks = tuple(Ack(*row) for row in read_array(archive, "acks").tolist())
    last_rounds = read_array(archive, "last_rounds").tolist()
    if not all(NEVER <= ack.round < round_number for ack in acks):
        raise ValueError(f"it acknowledges a reply to round {round_number} or later")
    names = array_names(archive)
    arrays = {name: read_array(archive, name) for name in names if name.startswith(SERVER_PREFIXES)}
    downlink = downlink_from_arrays(arrays, server.fleet, server.theta)
    theta = from_arrays(server.theta, arrays, "theta.")
    state = from_arrays(server.state, arrays, "server.")
    moments = from_arrays(server.moments, arrays, "moments.")
    losses = tuple(read_array(archive, "losses").tolist())
    health = health_from_arrays(arrays, len(acks))
    server.restore(
        ServerSnapshot(
            theta, state, moments, round_number, acks, downlink.references, losses, health,
            uploads=downlink.uploads, unanswered=downlink.unanswered,
        )
    )  # fmt: skip
    held = _models_from_arrays(arrays, server)
    simulation.with_reference = set(held)
    missing = {device for device, last in enumerate(last_rounds) if last != NEVER}
    for device, fields in _saved_states(archive, names):
        saved = DeviceSnapshot(
            state=from_arrays(sessions[device].state, fields),
            last_round=last_rounds[device],
            last_ack=acks[device],
            reference=held.get(device),
        )
        sessions[device].restore(saved)
        missing.discard(device)
    if missing:
        raise ValueError(f"it lacks the state of device {min(missing)}")


def _models_to_arrays(sessions: Sequence[DeviceSession], references: References) -> Arrays:
    """Return which reference models devices hold, and those that the server does not have."""
    held = {s.device: s.reference for s in sessions if s.reference is not None}
    models = {reference.checksum: reference for reference in held.values()}
    others = models.keys() - {reference.checksum for reference in references.values()}
    return {
        f"{MODELS_PREFIX}devices": np.asarray(list(held), np.int64),
        f"{MODELS_PREFIX}checksums": np.asarray([r.checksum for r in held.values()], np.int64),
        **{f"{MODELS_PREFIX}{name}": models[name].theta.cpu().numpy() for name in sorted(others)},
    }


def _models_from_arrays(arrays: Arrays, server: ServerSession) -> dict[DeviceId, ReferenceModel]:
    """Return the reference models that devices hold, none in a checkpoint of an earlier version."""
    models = {reference.checksum: reference for reference in server.references.values()}
    none, held = np.zeros(0, np.int64), dict[DeviceId, ReferenceModel]()
    devices, checksums = (
        arrays.get(f"{MODELS_PREFIX}{name}", none).tolist() for name in ("devices", "checksums")
    )
    for device, checksum in zip(devices, checksums, strict=True):
        if checksum not in models:
            theta = torch.from_numpy(arrays[f"{MODELS_PREFIX}{checksum}"].copy())
            models[checksum] = with_checksum(theta.to(server.theta.device, server.theta.dtype))
        held[device] = models[checksum]
    return held


def _save_states(archive: ZipFile, sessions: Sequence[DeviceSession]) -> None:
    by_layout: dict[StateLayout, list[DeviceSession]] = {}
    for session in sessions:
        arrays = to_arrays(session.state)
        layout = tuple((name, array.shape, array.dtype) for name, array in arrays.items())
        by_layout.setdefault(layout, []).append(session)
    for number, (layout, group) in enumerate(by_layout.items()):
        with _new_member(archive, f"states.{number}") as member:
            npy.write_array(member, np.asarray([session.device for session in group]))
        for name, shape, dtype in layout:
            with _new_member(archive, f"states.{number}.{name}") as member:
                _write_header(member, (len(group), *shape), dtype)
                for session in group:
                    member.write(to_arrays(session.state)[name].tobytes())


def _saved_states(archive: ZipFile, names: list[str]) -> Iterator[tuple[int, Arrays]]:
    """Yield the device and the arrays of every saved state."""
    for number in count():
        stack = f"states.{number}"
        if stack not in names:
            return
        fields = [name for name in names if name.startswith(f"{stack}.")]
        columns = [read_rows(archive, name) for name in fields]
        short = [name.removeprefix(f"{stack}.") for name in fields]
        for device, *row in zip(read_array(archive, stack), *columns, strict=True):
            yield int(device), dict(zip(short, row, strict=True))


def _write_header(member: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(member, header)


def _new_member(archive: ZipFile, name: str) -> IO[bytes]:
    return archive.open(f"{name}.npy", "w", force_zip64=True)
