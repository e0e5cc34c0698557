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
    for round in range(simulation.server.round, rounds):
        judged = (round + 1) % evaluate_every == 0 or round + 1 == rounds
        record = simulation.advance(evaluate if judged else None)
        records.append(record)
        if folder is not None:
            due = (round + 1) % checkpoint_every == 0 or round + 1 == rounds
            append_record(folder / RECORDS, record, to_disk=due)
            if due:
                save_checkpoint(folder / CHECKPOINT, simulation)
        if on_record is not None:
            on_record(record)
    return Run(simulation.theta, records)


def _begin(folder: Path | None, simulation: Simulation, resume: bool) -> list[Record]:
    """Prepare the folder; return the records of the rounds that need not be run again."""
    if folder is None:
        if resume:
            raise ValueError("resume needs the folder of the run to go on with, out=...")
        return []
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint, path = folder / CHECKPOINT, folder / RECORDS
    records: list[Record] = []
    if resume and checkpoint.exists():
        load_checkpoint(checkpoint, simulation)
        records = read_records(path)[: simulation.server.round]
        if len(records) < simulation.server.round:
            raise ValueError(
                f"{path} has {len(records)} records, the checkpoint beside it is of round "
                f"{simulation.server.round}"
            )
    elif not resume and path.exists():
        raise ValueError(f"{folder} already holds a run; resume it, or choose another folder")
    write_records(path, records)
    return records
