"""What `run` and `compare` have in common: methods trained, recorded, watched and followed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aquila.cli.setting import tracker_parameters, write_run_file

if TYPE_CHECKING:
    from aquila.cli.method_spec import MethodSpec
    from aquila.cli.progress import ProgressDisplay
    from aquila.report.trackers import RunTracking, Tracker
    from aquila.sim.experiment import Experiment
    from aquila.sim.module import Problem
    from aquila.sim.records import Record
    from aquila.tasks.partition import Partition

OCCUPIED_HINT = (
    "--resume goes on with it, --overwrite throws it away, or choose another folder with --out"
)


def prepare_output(
    spec: MethodSpec, out: Path | None, trackers: Sequence[Tracker], resume: bool, overwrite: bool
) -> None:
    """Make sure that a run may go where it is to go, before anything is trained."""
    from aquila.sim.run_folder import RunFolder

    if resume:
        if out is None:
            raise ValueError("--resume goes on with the run in a folder: name it with --out")
        return
    if out is not None:
        if overwrite:
            RunFolder(out).clear()
        RunFolder(out).check_unused(OCCUPIED_HINT)
    for tracker in trackers:
        tracker.reserve_name(spec.file_name, overwrite)


@dataclass(frozen=True)
class MethodRunner:
    """Everything that the runs of a command share."""

    experiment: Experiment
    problem: Problem
    parts: Partition
    resume: bool
    display: ProgressDisplay
    trackers: Sequence[Tracker] = ()

    def run(self, spec: MethodSpec, out: Path | None) -> list[Record]:
        """Run one method to the end and return its records."""
        following = self._following(spec, out)
        finished = False
        try:
            records = self._run(spec, out, following)
            finished = True
        finally:
            following.close(finished)
        return records

    def _run(self, spec: MethodSpec, out: Path | None, following: RunTracking) -> list[Record]:
        from aquila.sim.records import read_records

        started = False
        with self.display.show_run(spec.label) as (progress, show_record):

            def begin(before: Sequence[Record]) -> None:
                nonlocal started
                started = True
                progress.add_resumed(before)
                following.begin(before)

            def on_record(record: Record) -> None:
                if not started:  # not before the folder has proved to be free
                    if out is not None:
                        write_run_file(out, self.experiment, spec, self.parts)
                    before = [] if out is None else read_records(out)
                    begin(before[: record.round])
                show_record(record)
                following.log(record)

            records = self._simulate(spec, out, on_record)
            if not started:  # a run that was resumed after its last round
                begin(records)
        return records

    def _following(self, spec: MethodSpec, out: Path | None) -> RunTracking:
        from aquila.report.trackers import RunTracking, TrackedRun

        run = TrackedRun(spec.file_name, tracker_parameters(self.experiment, spec), out)
        return RunTracking(
            self.trackers,
            run,
            self.resume,
            lambda said: self.display.print_message(spec.label, said),
        )

    def _simulate(
        self, spec: MethodSpec, out: Path | None, on_record: Callable[[Record], None]
    ) -> list[Record]:
        from aquila.sim.simulate import simulate

        setting, problem = self.experiment.setting, self.problem
        return simulate(
            spec.create(self.experiment),
            problem.theta0,
            problem.devices,
            setting.rounds,
            setting.seed,
            evaluate=problem.evaluate,
            evaluate_every=setting.evaluate_every,
            fleet=problem.fleet,
            link=setting.link(),
            on_nan=setting.on_nan,
            workers=setting.workers,
            executor=setting.executor,
            participation=setting.participation,
            downlink_error=setting.downlink_error,
            state_memory=setting.state_memory * 2**20 or None,
            out=out,
            resume=self.resume,
            checkpoint_every=setting.checkpoint_every,
            identity=setting.identity(),
            on_record=on_record,
        ).records
