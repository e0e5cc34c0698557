"""Run a method to the end in one call, optionally with records and checkpoints on disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aquila.core.method import Method
from aquila.core.parameter import check_whole_number
from aquila.core.vector import Vector
from aquila.runtime.options import RunOptions
from aquila.sim.loop import Simulation
from aquila.sim.oracle import Device
from aquila.sim.records import Evaluate, Record
from aquila.sim.run_folder import RunFolder


@dataclass(frozen=True)
class Run:
    """The final model of a run and the record of each round."""

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
    on_record: Callable[[Record], None] | None = None,
    options: RunOptions = RunOptions(),
) -> Run:
    """Train over the devices and return the model and the records.

    Args:
        method: What devices and server compute, from `aquila.create`.
        theta0: The initial model, one flat vector.
        devices: One function theta -> (loss, gradient), oracle or shard per device.
        rounds: Number of rounds, those of a resumed run included.
        seed: Seed of every random number in the run.
        evaluate: Returns metrics of a model, by name. It is called every
            `options.evaluate_every` rounds and after the last round.
        on_record: Called with the record of each round that was run.
        options: How the run is carried out.
    """
    rounds = check_whole_number("rounds", rounds, 0)
    if evaluate is not None and not callable(evaluate):
        raise TypeError(f"evaluate must be a function theta -> metrics, not {evaluate!r}")
    if on_record is not None and not callable(on_record):
        raise TypeError(f"on_record must be a function of a record, not {on_record!r}")
    simulation = Simulation(method, theta0, devices, seed, options)
    folder = None if options.out is None else RunFolder(Path(options.out))
    if folder is None and options.resume:
        raise ValueError("resume=True needs the folder of the run to continue: set out")
    records = [] if folder is None else folder.start(simulation, method, rounds, options)
    try:
        for round_number in range(len(records), rounds):
            last = round_number + 1 == rounds
            evaluates = last or (round_number + 1) % options.evaluate_every == 0
            records.append(simulation.advance(evaluate if evaluates else None))
            if folder is not None:
                every = options.checkpoint_every
                due = every and (last or (round_number + 1) % every == 0)
                folder.append(records[-1], simulation, bool(due))
            if on_record is not None:
                on_record(records[-1])
    except KeyboardInterrupt:
        if folder is not None:
            folder.save_interrupted(records, simulation)
        raise
    finally:
        if folder is not None:
            folder.close()
    return Run(simulation.theta, records)
