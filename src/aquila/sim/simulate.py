"""One call that runs a method to the end, with records and checkpoints on disk if asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aquila.core.fleet import Fleet
from aquila.core.method import Method
from aquila.core.vector import Vector
from aquila.runtime.options import ExecutorChoice, NanPolicy, RunOptions
from aquila.sim.link import Link
from aquila.sim.loop import Evaluate, Simulation
from aquila.sim.oracle import Device
from aquila.sim.records import Record
from aquila.sim.run_folder import RunFolder


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
    workers: int = 0,
    executor: ExecutorChoice = "auto",
    participation: float = 1.0,
    downlink_error: float = 0.0,
    state_memory: int | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    checkpoint_every: int = 10,
    identity: str = "",
    on_record: Callable[[Record], None] | None = None,
) -> Run:
    """Train over the devices and return the model and the records.

    A device is a function theta -> (loss, gradient), an oracle, or a shard. `evaluate` judges the
    model after every `evaluate_every` rounds and after the last one. With `out`, records stream to
    that folder and a checkpoint is kept there, a new one every `checkpoint_every` rounds (0: only
    on an interrupt); `resume` goes on from it as if nothing had happened, provided that method,
    model, seed and `identity`, a text of yours, are the same. Devices get their turns by an
    `executor` of the simulator's choice or yours: `sequential`, `batched`, or `threads` with
    so many `workers` (0: as many as pay); the results are the same for any.
    `participation` is the share of the devices in a round. With `downlink_error` above 0 devices
    that replied to the last round are sent the model as a difference, coded up to this relative
    error, of which 0.5 is a good choice. States of the devices that could take more than
    `state_memory` bytes (default: half of the machine's memory) live on disk.
    """
    link = link or Link()
    options = RunOptions(
        participation=participation,
        downlink_error=downlink_error,
        uplink_loss=link.uplink_loss,
        downlink_loss=link.downlink_loss,
        on_nan=on_nan,
        executor=executor,
        workers=workers,
        state_memory=0.0 if state_memory is None else max(state_memory, 0.5) / 2**20,
        fleet=fleet,
        out=out,
        identity=identity,
    )
    simulation = Simulation(method, theta0, devices, seed, options)
    if min(rounds, evaluate_every - 1, checkpoint_every) < 0:
        raise ValueError("rounds and checkpoint_every must be at least 0, evaluate_every 1")
    folder = None if out is None else RunFolder(Path(out))
    records = _start_folder(folder, simulation, rounds, resume)
    try:
        for round_number in range(len(records), rounds):
            last = round_number + 1 == rounds
            evaluates = last or (round_number + 1) % evaluate_every == 0
            records.append(simulation.advance(evaluate if evaluates else None))
            if folder is not None:
                due = checkpoint_every and (last or (round_number + 1) % checkpoint_every == 0)
                folder.append(records[-1], simulation, bool(due))
            if on_record is not None:
                on_record(records[-1])
    except KeyboardInterrupt:
        if folder is not None:
            folder.save_interrupted(records, simulation)
        raise
    return Run(simulation.theta, records)


def _start_folder(
    folder: RunFolder | None, simulation: Simulation, rounds: int, resume: bool
) -> list[Record]:
    if folder is None:
        if resume:
            raise ValueError("resume needs the folder of the run to go on with, out=...")
        return []
    records = folder.start(simulation, resume)
    if len(records) > rounds:
        raise ValueError(
            f"{folder.path} already holds {len(records)} rounds, more than the {rounds} asked for"
        )
    return records
