"""The folder of a run: its records, one line per round, and its checkpoint."""

from pathlib import Path

from aquila.sim.checkpoint import load_checkpoint, save_checkpoint
from aquila.sim.compressed import plain_and_compressed
from aquila.sim.loop import Simulation
from aquila.sim.model_store import BEST_FILE, MODEL_FILE
from aquila.sim.records import (
    RECORDS_FILE,
    Record,
    append_record,
    read_records,
    records_file,
    write_records,
)
from aquila.sim.setting import RUN_FILE, SPLIT_FILE

CHECKPOINT_FILE = "checkpoint.npz"
RESUME_HINT = "set resume=True to continue it, or choose another folder for out"


class RunFolder:
    """The folder that a run writes its records and checkpoints to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / CHECKPOINT_FILE

    @property
    def holds_run(self) -> bool:
        """Whether the folder has the records of a run, archived or not."""
        records = records_file(self.path)
        return records is not None and records.stat().st_size > 0

    def check_unused(self, hint: str = RESUME_HINT) -> None:
        """Raise ValueError, with a hint, if the folder already holds a run or is a file."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is a file, not a folder")
        if self.holds_run:
            raise ValueError(f"{self.path} already holds a run; {hint}")

    def clear(self) -> None:
        """Delete the run in the folder, archived or not."""
        names = (RECORDS_FILE, CHECKPOINT_FILE, RUN_FILE, SPLIT_FILE, MODEL_FILE, BEST_FILE)
        for name in names:
            for path in plain_and_compressed(self.path / name):
                path.unlink(missing_ok=True)

    def start(self, simulation: Simulation, resume: bool) -> list[Record]:
        """Prepare the folder; return the records of the rounds that are already done."""
        if not resume:
            self.check_unused()
        self.path.mkdir(parents=True, exist_ok=True)
        records = self._load_run(simulation) if resume else []
        write_records(self.path, records)
        return records

    def append(self, record: Record, simulation: Simulation, due: bool) -> None:
        """Append the record of a round, and save a checkpoint if one is due."""
        append_record(self.path, record, sync=due)
        if due:
            save_checkpoint(self.checkpoint, simulation)

    def save_interrupted(self, records: list[Record], simulation: Simulation) -> None:
        """Save a checkpoint to resume from, if every closed round has a record."""
        if len(records) == simulation.server.round:
            write_records(self.path, records)
            save_checkpoint(self.checkpoint, simulation)

    def _load_run(self, simulation: Simulation) -> list[Record]:
        records = read_records(self.path)
        if not self.checkpoint.exists():
            if records:
                raise ValueError(f"{self.path} holds records but no checkpoint to resume from")
            return []
        load_checkpoint(self.checkpoint, simulation)
        if len(records) < simulation.server.round:
            raise ValueError(
                f"{self.path} has {len(records)} records, but its checkpoint is of round "
                f"{simulation.server.round}"
            )
        return records[: simulation.server.round]
