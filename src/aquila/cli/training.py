"""What `run` and `compare` have in common: one method, trained, recorded and watched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aquila.cli.setting import SETTINGS, SPLIT, save_settings

if TYPE_CHECKING:
    from aquila.cli.progress import Watch
    from aquila.cli.spec import Spec
    from aquila.sim.experiment import Experiment
    from aquila.sim.module import Problem
    from aquila.sim.records import Record
    from aquila.tasks.partition import Partition


def claim(out: Path | None, resume: bool, overwrite: bool) -> None:
    """Make sure that a run may go into its folder, before anything is trained."""
    from aquila.sim.folder import CHECKPOINT, RECORDS, RunFolder

    if out is None or resume:
        return
    if overwrite:
        for name in (RECORDS, CHECKPOINT, SETTINGS, SPLIT):
            (out / name).unlink(missing_ok=True)
    RunFolder(out).refuse_occupied()


def train(
    spec: Spec,
    experiment: Experiment,
    problem: Problem,
    parts: Partition,
    out: Path | None,
    resume: bool,
    watch: Watch,
) -> list[Record]:
    """Run one method to the end and return its records; the folder tells what was run in it."""
    from aquila.sim.folder import RECORDS
    from aquila.sim.records import read_records
    from aquila.sim.simulate import simulate

    setting, saved = experiment.setting, False

    def show(record: Record) -> None:
        nonlocal saved
        if out is not None and not saved:  # not before the folder has proved to be free
            save_settings(out, experiment, spec, parts)
            watch.sent_before(read_records(out / RECORDS)[: record.round])
            saved = True
        watch.show(record)

    watch.begin(spec.label)
    return simulate(
        spec.create(experiment),
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
        resume=resume,
        setting=setting.identity(),
        on_record=show,
    ).records
