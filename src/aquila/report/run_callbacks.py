"""Callbacks for `on_record`: the progress of a run, and its log in trackers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from aquila.report.progress import ProgressDisplay, make_console
from aquila.report.trackers import RunTracking, TrackedRun, Tracker, make_trackers

if TYPE_CHECKING:
    from aquila.sim.callbacks import RunStart
    from aquila.sim.records import Record


def progress(label: str | None = None) -> ProgressCallback:
    """Return a callback that shows the progress of a run in one line.

    Pass it to `simulate` as `on_record`. `label` is the name of the run, by default its method.
    """
    return ProgressCallback(label)


def trackers(
    tensorboard: Path | str | None = None,
    mlflow: str | None = None,
    *,
    name: str | None = None,
    settings: Mapping[str, object] | None = None,
    overwrite: bool = False,
) -> TrackerCallback:
    """Return a callback that logs every round of a run. Pass it to `simulate` as `on_record`.

    Args:
        tensorboard: Folder for `tensorboard --logdir`.
        mlflow: Address of MLflow, such as `sqlite:///mlflow.db` or that of a server.
        name: Name of the run. Default: the name of its method.
        settings: Values to log with the run, besides its method, seed, options and local work.
        overwrite: Delete a run of the same name in the TensorBoard folder.
    """
    made = make_trackers(None if tensorboard is None else Path(tensorboard), mlflow)
    if not made:
        raise ValueError("trackers needs a TensorBoard folder or the address of MLflow")
    further = dict(settings or {})
    return TrackerCallback(
        made, name, lambda start: {**_facts(start), **further}, _warn, overwrite=overwrite
    )


class ProgressCallback:
    """Shows the progress of one run after another."""

    def __init__(self, label: str | None = None, display: ProgressDisplay | None = None) -> None:
        self._label, self._display = label, display
        self._stack = ExitStack()
        self._show: Callable[[Record], None] | None = None

    def begin(self, start: RunStart) -> None:
        """Show the rounds that are already done."""
        label = self._label or start.method.name
        display = self._display or ProgressDisplay(make_console(), start.rounds, len(label))
        shown, self._show = self._stack.enter_context(display.show_run(label))
        shown.add_resumed(start.records)

    def __call__(self, record: Record) -> None:
        """Show one more round."""
        if self._show is not None:
            self._show(record)

    def close(self, finished: bool) -> None:
        """Leave the last line on the terminal."""
        self._show = None
        self._stack.close()


class TrackerCallback:
    """Logs one run after another to trackers."""

    def __init__(
        self,
        trackers: Sequence[Tracker],
        name: str | None,
        describe: Callable[[RunStart], Mapping[str, object]],
        warn: Callable[[str], None],
        *,
        overwrite: bool = False,
    ) -> None:
        self._trackers, self._name, self._describe = trackers, name, describe
        self._warn, self._overwrite = warn, overwrite
        self._tracking: RunTracking | None = None

    def begin(self, start: RunStart) -> None:
        """Open the logs, and log the rounds of a resumed run that they lack."""
        resume, name = start.options.resume, self._name or start.method.name
        if not resume:
            for tracker in self._trackers:
                tracker.reserve_name(name, self._overwrite)
        run = TrackedRun(name, self._describe(start), start.folder)
        self._tracking = RunTracking(self._trackers, run, resume, self._warn)
        self._tracking.begin(start.records)

    def __call__(self, record: Record) -> None:
        """Log one more round."""
        if self._tracking is not None:
            self._tracking.log(record)

    def close(self, finished: bool) -> None:
        """Mark the run as finished, or as stopped by an error or an interrupt."""
        tracking, self._tracking = self._tracking, None  # the next run may fail before its log
        if tracking is not None:
            tracking.close(finished)


def _facts(start: RunStart) -> dict[str, object]:
    from aquila.sim.run_file import method_parameters

    parameters = method_parameters(start.method)
    return {
        "method": start.method.name,
        **{f"method.{name}": value for name, value in parameters.items()},
        "rounds": start.rounds,
        "seed": start.seed,
        **start.options.to_dict(),
        **start.work,
    }


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)
