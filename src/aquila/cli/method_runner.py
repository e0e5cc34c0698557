"""Runs of methods for `run` and `compare`, with progress, files and trackers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aquila.cli.run_facts import run_facts, tracker_parameters

if TYPE_CHECKING:
    from aquila.cli.method_spec import MethodSpec
    from aquila.report.progress import ProgressDisplay
    from aquila.report.trackers import Tracker
    from aquila.sim.callbacks import Callback
    from aquila.sim.experiment import Experiment
    from aquila.sim.problem import Problem
    from aquila.sim.records import Record
    from aquila.tasks.partition import Partition

OCCUPIED_HINT = (
    "use --resume to continue it, --overwrite to delete it, or choose another folder with --out"
)


def prepare_output(
    spec: MethodSpec, out: Path | None, trackers: Sequence[Tracker], resume: bool, overwrite: bool
) -> None:
    """Check before training that the folder and the trackers can take the run."""
    from aquila.sim.run_folder import RunFolder

    if resume and overwrite:
        raise ValueError("--resume continues a run and --overwrite deletes it: give only one")
    if out is not None:
        RunFolder(out).check_free()
        if not resume and not overwrite:
            RunFolder(out).check_unused(OCCUPIED_HINT)
    elif resume:
        raise ValueError("--resume continues the run in a folder: name it with --out")
    elif overwrite and not trackers:
        raise ValueError("--overwrite deletes the run in a folder: name it with --out")
    if resume:
        return
    for tracker in trackers:
        tracker.reserve_name(spec.file_name, overwrite)


@contextmanager
def locked_output(out: Path | None, run_folders: Sequence[Path], overwrite: bool) -> Iterator[None]:
    """Keep other processes out of the --out folder; --overwrite deletes its runs first."""
    from aquila.sim.run_folder import RunFolder

    if out is None:
        yield
        return
    with RunFolder(out).locked():
        for folder in (RunFolder(path) for path in run_folders if overwrite and path.is_dir()):
            with folder.locked():
                folder.clear()
        yield


@dataclass(frozen=True)
class MethodRunner:
    """Everything that the runs of one command share."""

    experiment: Experiment
    problem: Problem
    parts: Partition
    resume: bool
    display: ProgressDisplay
    trackers: Sequence[Tracker] = ()

    def run(self, spec: MethodSpec, out: Path | None) -> list[Record]:
        """Run one method to the end and return its records."""
        from aquila.sim.run_folder import RunFolder
        from aquila.sim.simulate import simulate

        if self.resume and out is not None and not RunFolder(out).holds_run:
            self.display.print_message(spec.label, f"no run in {out}; starting at round 0")
        setting, problem = self.experiment.setting, self.problem
        run = simulate(
            spec.create(self.experiment),
            problem.theta0,
            problem.devices,
            setting.rounds,
            setting.seed,
            evaluate=problem.evaluate,
            on_record=self._callbacks(spec),
            options=replace(
                setting.options,
                fleet=problem.fleet,
                out=out,
                resume=self.resume,
                identity=setting.identity(),
                facts=run_facts(self.experiment, spec),
                partition=self.parts,
            ),
        )
        if run.stopped is not None:
            self.display.print_message(
                spec.label, f"ended after {len(run.records)} rounds: {run.stopped}"
            )
        return run.records

    def _callbacks(self, spec: MethodSpec) -> list[Callback]:
        from aquila.report.run_callbacks import ProgressCallback, TrackerCallback

        return [
            ProgressCallback(spec.label, self.display),
            TrackerCallback(
                self.trackers,
                spec.file_name,
                lambda start: tracker_parameters(self.experiment, spec),
                lambda message: self.display.print_message(spec.label, message),
            ),
        ]
