"""What an operator may do with a stopped run: list its checkpoints, roll it back, or delete it.

Both kinds of run folder work: those of the simulator and those of a server on Flower.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from aquila.runtime.checkpoints import EarlierCheckpoints
from aquila.runtime.persist import read_server_model
from aquila.sim.checkpoint import read_checkpoint_model
from aquila.sim.model_files import read_metadata
from aquila.sim.model_store import BEST_FILE, MODEL_FILE
from aquila.sim.records import read_records, write_records
from aquila.sim.run_folder import CHECKPOINT_FILE, RunFolder

SERVER_STATE = "server.state"
"""Checkpoint in the folder of a server on Flower."""
ARCHIVE_FOLDER = "archive"
ATTEMPTS_FILE = "attempts.json"
SAMPLES_FILE = "samples.json"
LOG_FILE = "log.jsonl"


@dataclass(frozen=True)
class SavedRounds:
    """The rounds that a run can continue from: the current one, and earlier ones."""

    current: int | None
    earlier: tuple[int, ...]


def saved_rounds(folder: Path) -> SavedRounds:
    """Return the rounds whose checkpoints a run folder has; ValueError if it holds no run."""
    current = _checkpoint(folder)
    newest = _read_round(current) if current.exists() else None
    earlier = EarlierCheckpoints(current).rounds()
    return SavedRounds(newest, tuple(number for number in earlier if number != newest))


def roll_back(folder: Path, round_number: int) -> None:
    """Let a run continue from the checkpoint of a round. Later rounds are deleted.

    Raises ValueError and changes nothing if that checkpoint is missing or damaged, or if a process
    is using the folder.
    """
    current = _checkpoint(folder)
    with RunFolder(folder).locked():
        earlier = EarlierCheckpoints(current)
        known = earlier.rounds()
        if round_number not in known:
            listed = ", ".join(map(str, known)) or "none"
            raise ValueError(
                f"{folder} has no checkpoint of round {round_number}; it has those of rounds: "
                f"{listed}"
            )
        _read_round(earlier.path(round_number))
        records = read_records(folder)
        if len(records) < round_number:
            raise ValueError(f"{folder} has only {len(records)} records, not {round_number}")
        earlier.restore(round_number)
        earlier.prune(round_number, len(known))
        write_records(folder, records[:round_number])
        for path in (folder / MODEL_FILE, folder / BEST_FILE):
            if int(read_metadata(path).get("round", -1)) >= round_number:
                path.unlink()


def start_over(folder: Path) -> None:
    """Delete a run, so that the next one in its folder starts at round 0."""
    _check_exists(folder)
    with RunFolder(folder).locked():
        RunFolder(folder).clear()
        for name in (SERVER_STATE, ATTEMPTS_FILE, SAMPLES_FILE):
            (folder / name).unlink(missing_ok=True)
        for pattern in (f"{SERVER_STATE}.version-*", f"{LOG_FILE}*"):  # earlier versions, old logs
            for path in folder.glob(pattern):
                path.unlink()
        shutil.rmtree(folder / ARCHIVE_FOLDER, ignore_errors=True)


def _checkpoint(folder: Path) -> Path:
    """Return the path of the current checkpoint, which may be missing."""
    _check_exists(folder)
    server, simulated = folder / SERVER_STATE, folder / CHECKPOINT_FILE
    is_server = server.exists() or EarlierCheckpoints(server).rounds()
    if not is_server and not simulated.exists() and not EarlierCheckpoints(simulated).rounds():
        raise ValueError(f"{folder} has no checkpoint of a run")
    return server if is_server else simulated


def _check_exists(folder: Path) -> None:
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")


def _read_round(checkpoint: Path) -> int:
    """Return the round of a checkpoint; ValueError if it is damaged."""
    try:
        read = read_server_model if checkpoint.suffix == ".state" else read_checkpoint_model
        return read(checkpoint)[0]
    except ValueError as error:
        raise ValueError(f"{checkpoint} cannot be used: {error}") from None
