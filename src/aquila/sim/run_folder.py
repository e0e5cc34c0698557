"""The folder of a run: its records, one line per round, its checkpoint and its description."""

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path

from aquila.core.method import Method
from aquila.runtime.checkpoints import CHECKPOINTS_FOLDER, EarlierCheckpoints
from aquila.runtime.file_lock import LOCK_FILE, file_lock
from aquila.runtime.files import check_folder, make_folder
from aquila.runtime.options import RunOptions
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
from aquila.sim.run_file import write_run_file
from aquila.sim.setting import RUN_FILE, SPLIT_FILE
from aquila.sim.times import TIMES_FILE, append_time, read_times, write_times

CHECKPOINT_FILE = "checkpoint.npz"
RESUME_HINT = "set resume=True to continue it, or choose another folder for out"

_LOCKED: ContextVar[frozenset[Path]] = ContextVar("locked folders", default=frozenset())
"""The folders that callers have locked for the runs they start."""


class RunFolder:
    """The folder that a run writes its records and checkpoints to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / CHECKPOINT_FILE
        self._earlier = EarlierCheckpoints(self.checkpoint)
        self._options = RunOptions()
        self._open = ExitStack()
        self._round_started = 0.0

    @property
    def holds_run(self) -> bool:
        """Whether the folder has the records of a run, archived or not, or its checkpoint."""
        records = records_file(self.path)
        has_records = records is not None and records.stat().st_size > 0
        return has_records or self.checkpoint.exists() or bool(self._earlier.rounds())

    def check_unused(self, hint: str = RESUME_HINT) -> None:
        """Raise ValueError, with a hint, if the folder already holds a run."""
        if self.holds_run:
            raise ValueError(f"{self.path} already holds a run; {hint}")

    def check_free(self) -> None:
        """Raise ValueError if the folder is not writable or another process is using it."""
        check_folder(self.path)
        if (self.path / LOCK_FILE).exists():
            with self.locked():
                pass

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder and keep other processes and threads out of it.

        Raises ValueError if it is in use. Within the block, one run after another can `start`.
        """
        path = self.path.resolve()
        make_folder(self.path)
        with ExitStack() as stack:
            if path not in _LOCKED.get():
                stack.enter_context(self._lock())
            stack.callback(_LOCKED.reset, _LOCKED.set(_LOCKED.get() | {path}))
            yield

    def clear(self) -> None:
        """Delete the run in the folder, archived or not."""
        names = (
            RECORDS_FILE, TIMES_FILE, CHECKPOINT_FILE, RUN_FILE, SPLIT_FILE, MODEL_FILE, BEST_FILE,
        )  # fmt: skip
        for name in names:
            for path in plain_and_compressed(self.path / name):
                path.unlink(missing_ok=True)
        shutil.rmtree(self.path / CHECKPOINTS_FOLDER, ignore_errors=True)

    def start(
        self, simulation: Simulation, method: Method, rounds: int, options: RunOptions
    ) -> list[Record]:
        """Lock the folder until `close`; return the records of the rounds that are already done."""
        with ExitStack() as stack:
            stack.enter_context(self.locked())
            others = _LOCKED.get() - {self.path.resolve()}
            stack.callback(_LOCKED.reset, _LOCKED.set(others))  # a second run must not start
            if not options.resume:
                self.check_unused()
            records = self._load_run(simulation) if options.resume else []
            if len(records) > rounds:
                raise ValueError(
                    f"{self.path} already holds {len(records)} rounds, more than the requested "
                    f"{rounds}"
                )
            self._options = options
            self._earlier.prune(simulation.server.round, options.keep_checkpoints)
            write_run_file(self.path, simulation, method, rounds, options)
            write_records(self.path, records)
            write_times(self.path, read_times(self.path, len(records)))
            self._round_started = time.monotonic()
            self._open = stack.pop_all()
        return records

    def close(self) -> None:
        """Release the folder for other processes."""
        self._open.close()

    def append(self, record: Record, simulation: Simulation, due: bool) -> None:
        """Append the record of a round, and save a checkpoint if one is due."""
        append_record(self.path, record, sync=due)
        now = time.monotonic()
        append_time(self.path, record.round, now - self._round_started)
        self._round_started = now
        if due:
            save_checkpoint(self.checkpoint, simulation)
            done, keep = simulation.server.round, self._options.keep_checkpoints
            if keep and done % self._options.checkpoint_every == 0:
                self._earlier.add_current(done)
            self._earlier.prune(done, keep)

    def save_interrupted(self, records: list[Record], simulation: Simulation) -> None:
        """Save a checkpoint to resume from, if every closed round has a record."""
        if len(records) == simulation.server.round:
            write_records(self.path, records)
            save_checkpoint(self.checkpoint, simulation)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                stack.enter_context(file_lock(self.path / LOCK_FILE, str(self.path)))
            except TimeoutError:
                raise ValueError(
                    f"another run is using {self.path}; wait until it ends, or choose another "
                    "folder"
                ) from None
            yield

    def _load_run(self, simulation: Simulation) -> list[Record]:
        records = read_records(self.path)
        if not self.checkpoint.exists():
            if records:
                raise ValueError(
                    f"{self.path} holds records but no checkpoint to resume from; choose another "
                    "folder to start again"
                )
            return []
        load_checkpoint(self.checkpoint, simulation)
        if len(records) < simulation.server.round:
            raise ValueError(
                f"{self.path} has {len(records)} records, but its checkpoint is of round "
                f"{simulation.server.round}"
            )
        return records[: simulation.server.round]
