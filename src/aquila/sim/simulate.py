"""Run a method to the end in one call, optionally with records, checkpoints and models on disk."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from aquila.core.method import Method
from aquila.core.parameter import check_whole_number
from aquila.core.vector import Vector
from aquila.runtime.nan_guard import NonFiniteError
from aquila.runtime.options import RunOptions, check_options
from aquila.sim.callbacks import Callbacks, OnRecord, RunStart
from aquila.sim.loop import Simulation
from aquila.sim.model_files import check_model_path
from aquila.sim.model_store import BestModel, ModelStore, facts_of_last, save_model
from aquila.sim.oracle import Device
from aquila.sim.records import Evaluate, Record
from aquila.sim.run_folder import RunFolder
from aquila.sim.stopping import StoppingRule
from aquila.training.module_builder import ModuleBuilder
from aquila.training.module_shard import shared_work

CALLBACK_REASON = "on_record returned True"


@dataclass(frozen=True, repr=False)
class Run:
    """The final model of a run and the record of each round.

    Args:
        theta: The final model, one flat vector. With `model_average` it is the average.
        records: One record per round.
        best: The model with the best main metric, if the run was evaluated.
        stopped: Why the run ended before its last round, or None.
    """

    theta: Vector
    records: list[Record]
    best: BestModel | None = None
    stopped: str | None = None
    _builder: ModuleBuilder | None = None

    def __repr__(self) -> str:
        best, end = self.best, f", stopped: {self.stopped}" if self.stopped else ""
        quality = "" if best is None else f", best {best.metric} {best.value:.4g}"
        return f"Run({self.theta.numel():,} parameters, {len(self.records)} rounds{quality}{end})"

    def save(self, path: Path | str, *, best: bool = False) -> None:
        """Write the state dict of the trained module to a `.safetensors` or `.pt` file.

        The file has the final model, or with `best=True` the best one.
        """
        path = check_model_path(path)
        if self._builder is None:
            raise ValueError(
                "the devices of this run have no module to save; save the vector with "
                "torch.save(run.theta, path)"
            )
        if best and self.best is None:
            raise ValueError("the run has no best model, because it was not evaluated")
        if best and self.best is not None:
            save_model(path, self.best.theta, self._builder, self.best.facts)
        else:
            save_model(path, self.theta, self._builder, facts_of_last(self.records))


def simulate(
    method: Method,
    theta0: Vector,
    devices: Sequence[Device],
    rounds: int = 50,
    seed: int = 0,
    *,
    evaluate: Evaluate | None = None,
    on_record: OnRecord | None = None,
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
        on_record: Called with the record of each round that was run, or a list of such functions.
            If one of them returns True, the run ends.
        options: How the run is carried out.
    """
    rounds = check_whole_number("rounds", rounds, 0)
    if evaluate is not None and not callable(evaluate):
        raise TypeError(f"evaluate must be a function theta -> metrics, not {evaluate!r}")
    check_options(options)
    callbacks, rule = Callbacks(on_record), StoppingRule(options, evaluate is not None)
    simulation = Simulation(method, theta0, devices, seed, options.for_rounds(rounds))
    folder = None if options.out is None else RunFolder(Path(options.out))
    if folder is None and options.resume:
        raise ValueError("resume=True needs the folder of the run to continue: set out")
    records = [] if folder is None else folder.start(simulation, method, rounds, options)
    with ExitStack() as stack:
        if folder is not None:
            stack.callback(folder.close)
        start = RunStart(method, rounds, seed, options, tuple(records), shared_work(devices))
        models = ModelStore(start.folder, method.name, _builder_of(devices))
        models.resume(simulation.evaluated_model, len(records))
        rule.resume(records)
        stack.enter_context(callbacks.opened(start))
        loop = _RoundLoop(simulation, start, evaluate, records, folder, models, rule)
        stopped = loop.run(callbacks)
    return Run(simulation.evaluated_model, records, models.best, stopped, models.builder)


@dataclass(frozen=True)
class _RoundLoop:
    """The rounds of one call of `simulate`."""

    simulation: Simulation
    start: RunStart
    evaluate: Evaluate | None
    records: list[Record]
    folder: RunFolder | None
    models: ModelStore
    rule: StoppingRule

    def run(self, callbacks: Callbacks) -> str | None:
        """Run the rounds that are left and write the models; return why the run ended early."""
        try:
            stopped = self._run_rounds(callbacks)
        except KeyboardInterrupt:
            if self.folder is not None and len(self.records) == self.simulation.server.round:
                self.folder.save_interrupted(self.records, self.simulation)
                self.models.write_final(self.simulation.evaluated_model, self.records)
            raise
        except NonFiniteError:
            self.models.write_best()
            raise
        self.models.write_final(self.simulation.evaluated_model, self.records)
        return stopped

    def _run_rounds(self, callbacks: Callbacks) -> str | None:
        while len(self.records) < self.start.rounds:
            if self.rule.reason is not None:  # also that of a resumed run
                return self.rule.reason
            self._advance()
            if callbacks(self.records[-1]):
                self._save_checkpoint()
                return CALLBACK_REASON
        return None

    def _advance(self) -> None:
        """Run, record and save one round."""
        options, done = self.start.options, len(self.records) + 1
        last = done == self.start.rounds
        evaluates = last or done % options.evaluate_every == 0
        record = self.simulation.advance(self.evaluate if evaluates else None)
        if self.rule.add(record) and self.rule.best is not None:
            self.models.keep_best(self.simulation.evaluated_model, self.rule.best)
        # last, because an interrupt saves the run if every round has a record
        self.records.append(record)
        if self.folder is not None:
            every = options.checkpoint_every
            last = last or self.rule.reason is not None
            due = bool(every) and (last or done % every == 0)
            if due:
                self.models.write_best()
            self.folder.append(record, self.simulation, due)

    def _save_checkpoint(self) -> None:
        """Save a checkpoint of a run that a callback ended."""
        if self.folder is not None and self.start.options.checkpoint_every:
            self.folder.save_interrupted(self.records, self.simulation)


def _builder_of(devices: Sequence[Device]) -> ModuleBuilder | None:
    """Return what makes the module of a trained vector, if all devices are of one problem."""
    builders = [getattr(device, "builder", None) for device in devices]
    first = builders[0]
    shared = isinstance(first, ModuleBuilder) and all(builder is first for builder in builders)
    return first if shared else None
