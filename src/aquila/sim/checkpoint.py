"""Checkpoints of a simulation, written atomically and without pickle.

A checkpoint is an `.npz` file. `acks` has one row per device: round and checksum of its last
applied reply. The states of devices that have had a turn are stacked, one array per field. They
are written and read one device at a time, because all of them may not fit into memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray

from aquila.core.packet import NEVER
from aquila.core.state import Arrays, from_arrays, to_arrays
from aquila.core.vector import Vector
from aquila.runtime.device_session import DeviceSession, DeviceSnapshot
from aquila.runtime.files import atomic_file
from aquila.runtime.fingerprint import fingerprint_differences
from aquila.runtime.fleet_health import HEALTH_PREFIX, health_from_arrays
from aquila.runtime.messages import Ack
from aquila.runtime.model_downlink import (
    REFERENCE_PREFIX,
    references_from_arrays,
    references_to_arrays,
)
from aquila.runtime.server_state import ServerSnapshot

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
        **references_to_arrays(saved.references),
    }
    with atomic_file(path, private=True) as file, ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with _open_member(archive, name, "w") as member:
                npy.write_array(member, array, allow_pickle=False)
        _save_states(archive, [s for s in sessions if s.last_round != NEVER])


def load_checkpoint(path: Path, simulation: "Simulation") -> None:
    """Continue a new simulation from a file; raise ValueError if the file is of another run."""
    try:
        with ZipFile(path) as archive:
            saved = str(_read_array(archive, "fingerprint"))
    except (OSError, KeyError, ValueError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path} is not a checkpoint: {error}") from error
    if differences := fingerprint_differences(saved, simulation.fingerprint):
        raise ValueError(
            f"{path} is a checkpoint of another run and cannot be resumed: {'; '.join(differences)}"
        )
    try:
        with ZipFile(path) as archive:
            _restore(archive, simulation)
    except (KeyError, IndexError, ValueError, TypeError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path} is not a complete checkpoint: {error}") from error


def read_checkpoint_model(path: Path) -> tuple[int, Vector]:
    """Return the number of rounds and the model of a checkpoint, without the run it is of."""
    try:
        with ZipFile(path) as archive:
            theta = torch.from_numpy(_read_array(archive, "theta."))
            return int(_read_array(archive, "round")), theta
    except (OSError, KeyError, ValueError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path} is not a checkpoint: {error}") from error


def _restore(archive: ZipFile, simulation: "Simulation") -> None:
    server, sessions = simulation.server, simulation.devices
    round_number = int(_read_array(archive, "round"))
    acks = tuple(Ack(*row) for row in _read_array(archive, "acks").tolist())
    last_rounds = _read_array(archive, "last_rounds").tolist()
    if not all(NEVER <= ack.round < round_number for ack in acks):
        raise ValueError(f"it acknowledges a reply to round {round_number} or later")
    names = [name.removesuffix(".npy") for name in archive.namelist()]
    arrays = {
        name: _read_array(archive, name)
        for name in names
        if name.startswith(("theta.", "server.", "moments.", REFERENCE_PREFIX, HEALTH_PREFIX))
    }
    references = references_from_arrays(arrays, server.fleet, server.theta)
    theta = from_arrays(server.theta, arrays, "theta.")
    state = from_arrays(server.state, arrays, "server.")
    moments = from_arrays(server.moments, arrays, "moments.")
    losses = tuple(_read_array(archive, "losses").tolist())
    health = health_from_arrays(arrays, len(acks))
    server.restore(
        ServerSnapshot(theta, state, moments, round_number, acks, references, losses, health)
    )
    missing = {device for device, last in enumerate(last_rounds) if last != NEVER}
    for device, fields in _saved_states(archive, names):
        saved = DeviceSnapshot(
            state=from_arrays(sessions[device].state, fields),
            last_round=last_rounds[device],
            last_ack=acks[device],
            reference=server.reference_for(device),
        )
        sessions[device].restore(saved)
        missing.discard(device)
    if missing:
        raise ValueError(f"it lacks the state of device {min(missing)}")


def _save_states(archive: ZipFile, sessions: Sequence[DeviceSession]) -> None:
    by_layout: dict[StateLayout, list[DeviceSession]] = {}
    for session in sessions:
        arrays = to_arrays(session.state)
        layout = tuple((name, array.shape, array.dtype) for name, array in arrays.items())
        by_layout.setdefault(layout, []).append(session)
    for number, (layout, group) in enumerate(by_layout.items()):
        with _open_member(archive, f"states.{number}", "w") as member:
            npy.write_array(member, np.asarray([session.device for session in group]))
        for name, shape, dtype in layout:
            with _open_member(archive, f"states.{number}.{name}", "w") as member:
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
        with ExitStack() as opened:
            columns = [
                _read_rows(opened.enter_context(_open_member(archive, n, "r"))) for n in fields
            ]
            short = [name.removeprefix(f"{stack}.") for name in fields]
            for device, *row in zip(_read_array(archive, stack), *columns, strict=True):
                yield int(device), dict(zip(short, row, strict=True))


def _read_rows(member: IO[bytes]) -> Iterator[NDArray[Any]]:
    """Yield the rows of a saved array one by one, without reading all of it into memory."""
    npy.read_magic(member)
    shape, _, dtype = npy.read_array_header_1_0(member)
    if dtype.hasobject:
        raise ValueError("it holds pickled objects")
    size = prod(shape[1:]) * dtype.itemsize
    for _ in range(shape[0]):
        yield np.frombuffer(member.read(size), dtype).reshape(shape[1:])


def _write_header(member: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(member, header)


def _read_array(archive: ZipFile, name: str) -> NDArray[Any]:
    with _open_member(archive, name, "r") as member:
        array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
    return array


def _open_member(archive: ZipFile, name: str, mode: Any) -> IO[bytes]:
    return archive.open(f"{name}.npy", mode, force_zip64=mode == "w")
