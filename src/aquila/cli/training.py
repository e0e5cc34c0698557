"""What `run` and `compare` have in common: methods trained, recorded, watched and followed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aquila.cli.setting import flat_facts, save_settings

if TYPE_CHECKING:
    from aquila.cli.progress import Watch
    from aquila.cli.spec import Spec
    from aquila.report.trackers import Following, Tracker
    from aquila.sim.experiment import Experiment
    from aquila.sim.module import Problem
    from aquila.sim.records import Record
    from aquila.tasks.partition import Partition

CHOICES = (
    "--resume goes on with it, --overwrite throws it away, or choose another folder with --out"
)


def claim(
    spec: Spec, out: Path | None, trackers: Sequence[Tracker], resume: bool, overwrite: bool
) -> None:
    """Make sure that a run may go where it is to go, before anything is trained."""
    from aquila.sim.folder import RunFolder

    if resume:
        if out is None:
            raise ValueError("--resume goes on with the run in a folder: name it with --out")
        return
    if out is not None:
        if overwrite:
            RunFolder(out).clear()
        RunFolder(out).refuse_occupied(CHOICES)
    for tracker in trackers:
        tracker.claim(spec.file_name, overwrite)


@dataclass(frozen=True)
class Training:
    """Everything that the runs of a command share."""

    experiment: Experiment
    problem: Problem
    parts: Partition
    resume: bool
    watch: Watch
    trackers: Sequence[Tracker] = ()

    def run(self, spec: Spec, out: Path | None) -> list[Record]:
        """Run one method to the end and return its records."""
        following = self._following(spec, out)
        finished = False
        try:
            records = self._run(spec, out, following)
            finished = True
        finally:
            following.close(finished)
        return records

    def _run(self, spec: Spec, out: Path | None, following: Following) -> list[Record]:
        from aquila.sim.records import read_records

        began = False
        with self.watch.run(spec.label) as (standing, show):

            def begin(before: Sequence[Record]) -> None:
                nonlocal began
                began = True
                standing.resumed(before)
                following.begin(before)

            def hear(record: Record) -> None:
                if not began:  # not before the folder has proved to be free
                    if out is not None:
                        save_settings(out, self.experiment, spec, self.parts)
                    before = [] if out is None else read_records(out)
                    begin(before[: record.round])
                show(record)
                following.log(record)

            records = self._simulate(spec, out, hear)
            if not began:  # a run that was resumed after its last round
                begin(records)
        return records

    def _following(self, spec: Spec, out: Path | None) -> Following:
        from aquila.report.trackers import Followed, Following

        run = Followed(spec.file_name, flat_facts(self.experiment, spec), out)
        return Following(
            self.trackers, run, self.resume, lambda said: self.watch.say(spec.label, said)
        )

    def _simulate(
        self, spec: Spec, out: Path | None, hear: Callable[[Record], None]
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
            strategy=setting.strategy,
            participation=setting.participation,
            downlink=setting.downlink,
            state_memory=setting.state_memory * 2**20 or None,
            out=out,
            resume=self.resume,
            checkpoint_every=setting.checkpoint_every,
            setting=setting.identity(),
            on_record=hear,
        ).records
