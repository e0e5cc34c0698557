"""One call that runs a method to the end, with records and checkpoints on disk if asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aquila.core.fleet import Fleet
from aquila.core.method import Method
from aquila.core.vector import Vector
from aquila.runtime.finite import NanPolicy
from aquila.sim.checkpoint import load_checkpoint, save_checkpoint
from aquila.sim.link import Link
from aquila.sim.loop import Evaluate, Simulation
from aquila.sim.oracle import Device
from aquila.sim.records import Record, append_record, read_records, write_records

RECORDS = "records.jsonl"
CHECKPOINT = "checkpoint.npz"


@dataclass(frozen=True)
class Run:
    """The last model of a run and the record of every round."""

    theta: Vector
    records: list[Record]


def simulate(
    method: Method,
    theta0: Vector,
    devices: Sequence[Device],
    rounds: int = 50,
    seed: int = 0,
    *,
    evaluate: Evaluate | None = None,
    evaluate_every: int = 1,
    fleet: Fleet | None = None,
    link: Link | None = None,
    on_nan: NanPolicy = "stop",
    out: Path | str | None = None,
    resume: bool = False,
    checkpoint_every: int = 10,
    setting: str = "",
    on_record: Callable[[Record], None] | None = None,
) -> Run:
    """Train over the devices and return the model and the records.

    A device is a function theta -> (loss, gradient), an oracle, or a shard. `evaluate` judges the
    model after every `evaluate_every` rounds and after the last one. With `out`, records stream to
    that folder and a checkpoint is kept there; `resume` goes on from it as if nothing had happened,
    provided that method, model, seed and `setting`, a text of yours, are the same.
    """
    simulation = Simulation(
        method,
        theta0,
        devices,
        seed=seed,
        fleet=fleet,
        link=link,
        on_nan=on_nan,
        setting=setting,
    )
    folder = None if out is None else Path(out)
    records = _begin(folder, simulation, resume)
    _check_lengths(folder, len(records), rounds, evaluate_every, checkpoint_every)
    try:
        for round in range(len(records), rounds):
            last = round + 1 == rounds
            judged = last or (round + 1) % evaluate_every == 0
            records.append(simulation.advance(evaluate if judged else None))
            if folder is not None:
                due = last or (round + 1) % checkpoint_every == 0
                _keep(folder, records[-1], simulation, due)
            if on_record is not None:
                on_record(records[-1])
    except KeyboardInterrupt:
        if folder is not None and len(records) == simulation.server.round:
            save_checkpoint(folder / CHECKPOINT, simulation)
        raise
    return Run(simulation.theta, records)


def _keep(folder: Path, record: Record, simulation: Simulation, due: bool) -> None:
    append_record(folder / RECORDS, record, to_disk=due)
    if due:
        save_checkpoint(folder / CHECKPOINT, simulation)


def _check_lengths(
    folder: Path | None, done: int, rounds: int, evaluate_every: int, checkpoint_every: int
) -> None:
    if rounds < 0 or min(evaluate_every, checkpoint_every) < 1:
        raise ValueError("rounds must be at least 0, evaluate_every and checkpoint_every 1")
    if done > rounds:
        raise ValueError(f"{folder} already holds {done} rounds, more than the {rounds} asked for")


def refuse_occupied(folder: Path) -> None:
    """Raise ValueError if the folder holds a run, or is no folder."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, not a folder")
    records = folder / RECORDS
    if records.exists() and records.stat().st_size:
        raise ValueError(f"{folder} already holds a run; resume it, or choose another folder")


def _begin(folder: Path | None, simulation: Simulation, resume: bool) -> list[Record]:
    """Prepare the folder; return the records of the rounds that need not be run again."""
    if folder is None:
        if resume:
            raise ValueError("resume needs the folder of the run to go on with, out=...")
        return []
    if not resume:
        refuse_occupied(folder)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint, path = folder / CHECKPOINT, folder / RECORDS
    records = read_records(path) if resume else []
    if resume and checkpoint.exists():
        load_checkpoint(checkpoint, simulation)
        records = records[: simulation.server.round]
        if len(records) < simulation.server.round:
            raise ValueError(
                f"{path} has {len(records)} records, the checkpoint beside it is of round "
                f"{simulation.server.round}"
            )
    elif records:
        raise ValueError(f"{folder} holds records but no checkpoint to go on from")
    write_records(path, records)
    return records
