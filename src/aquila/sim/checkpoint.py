"""Checkpoints: a run on disk, written whole or not at all, without pickle."""

import os
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

from aquila.core.packet import NEVER
from aquila.core.state import Arrays, from_arrays, to_arrays

if TYPE_CHECKING:
    from aquila.sim.loop import Simulation


def save_checkpoint(path: Path, simulation: "Simulation") -> None:
    """Save the simulation as it was after the last closed round."""
    server = simulation.server
    arrays: Arrays = {
        "fingerprint": np.asarray(simulation.fingerprint),
        "round": np.asarray(server.round),
        "acks": np.asarray(server.acks),
        **to_arrays(server.state, "server."),
    }
    for session in simulation.devices:
        session.rewind(server.round)
        session.settle(server.acks[session.device])
        arrays[f"{session.device}.last_round"] = np.asarray(session.last_round)
        arrays |= to_arrays(session.state, f"{session.device}.state.")
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def load_checkpoint(path: Path, simulation: "Simulation") -> None:
    """Bring a fresh simulation to the saved round; ValueError if it is not the same run."""
    try:
        with path.open("rb") as file:
            arrays = dict(np.load(file, allow_pickle=False))
    except (OSError, ValueError, TypeError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path} is not a checkpoint: {error}") from error
    _check_same_run(path, str(arrays.get("fingerprint")), simulation.fingerprint)
    server = simulation.server
    try:
        round, acks = int(arrays["round"]), [int(ack) for ack in arrays["acks"]]
        if not all(NEVER <= ack < round for ack in acks):
            raise ValueError("it acknowledges rounds that have not been")
        server.restore(from_arrays(server.state, arrays, "server."), round, acks)
        for session in simulation.devices:
            state = from_arrays(session.state, arrays, f"{session.device}.state.")
            last_round = int(arrays[f"{session.device}.last_round"])
            session.restore(state, last_round, acks[session.device])
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise ValueError(f"{path} is not a whole checkpoint: {error}") from error


def _check_same_run(path: Path, saved: str, asked: str) -> None:
    """Refuse another run's checkpoint, and name only what differs."""
    pairs = zip_longest(saved.splitlines(), asked.splitlines(), fillvalue="nothing")
    differences = [f"{mine} (saved: {theirs})" for theirs, mine in pairs if mine != theirs]
    if differences:
        raise ValueError(
            f"{path} is of another run and cannot be resumed: {'; '.join(differences)}"
        )
