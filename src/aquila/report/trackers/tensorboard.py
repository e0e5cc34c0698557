"""Logs runs to TensorBoard with its own writer; needs neither TensorFlow nor torch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aquila.report.trackers import TrackedRun
from aquila.runtime.install_hint import install_hint

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

EVENT_FILES = "events.out.tfevents.*"


class TensorBoard:
    """A folder for `tensorboard --logdir`, with one subfolder per run."""

    title = "TensorBoard"

    def __init__(self, folder: Path) -> None:
        try:
            import tensorboard  # noqa: F401
        except ImportError as error:
            raise ValueError(
                f"--tensorboard needs TensorBoard: {install_hint('tensorboard')}"
            ) from error
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{folder} is a file, not a folder")
        self._folder = folder

    def reserve_name(self, name: str, overwrite: bool) -> None:
        """Raise ValueError if a run of this name exists; with `overwrite`, delete it."""
        for file in self._files(name):
            if not overwrite:
                raise ValueError(
                    f"{file.parent} already holds a run; --overwrite (in Python overwrite=True) "
                    "deletes it, or choose another folder"
                )
            file.unlink()

    def open(self, run: TrackedRun, resume: bool) -> TensorBoardRun:
        """Start the log of a run, or continue it."""
        return TensorBoardRun(self._folder / run.name, self._files(run.name), run.facts)

    def _files(self, name: str) -> list[Path]:
        return sorted((self._folder / name).glob(EVENT_FILES))


class TensorBoardRun:
    """Event files of one run: one for its start, and one per resume."""

    def __init__(self, folder: Path, files: list[Path], facts: Mapping[str, object]) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._logged_rounds = {step for file in files for step in _logged_steps(file)}
        self._writer: Any = EventFileWriter(str(folder))
        self._writer.add_event(_hparams_event(facts))

    def known_rounds(self, rounds: int) -> int:
        """Return how many of the first rounds are already logged; later ones are discarded."""
        first = next((n for n in range(rounds) if n not in self._logged_rounds), rounds)
        if any(step >= first for step in self._logged_rounds):
            self._writer.add_event(_restart_event(first))
        return first

    def log(self, round_number: int, values: Mapping[str, float]) -> None:
        """Log the metrics of a round."""
        from tensorboard.compat.proto.event_pb2 import Event

        event = Event(wall_time=time.time(), step=round_number)
        for name, value in values.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._writer.add_event(event)
        self._writer.flush()

    def close(self, finished: bool) -> None:
        """Close the file; TensorBoard has no status of a run."""
        self._writer.close()


def _logged_steps(file: Path) -> set[int]:
    """Return the rounds that an event file contains."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    events = (Event.FromString(raw) for raw in RawEventFileLoader(str(file)).Load())
    return {e.step for e in events if any(v.tag == "uplink_bytes" for v in e.summary.value)}


def _restart_event(step: int) -> Event:
    """Return an event that discards this step and later ones in earlier files."""
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog

    log = SessionLog(status=SessionLog.START)
    return Event(wall_time=time.time(), step=step, session_log=log)


def _hparams_event(facts: Mapping[str, object]) -> Event:
    """Return the settings of a run as TensorBoard hyperparameters."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

    info = SessionStartInfo(start_time_secs=time.time())
    for name, value in facts.items():
        if isinstance(value, bool):
            info.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            info.hparams[name].number_value = value
        else:
            info.hparams[name].string_value = str(value)
    event = Event(wall_time=time.time())
    event.summary.value.add(
        tag=metadata.SESSION_START_INFO_TAG,
        metadata=metadata.create_summary_metadata(HParamsPluginData(session_start_info=info)),
        tensor=metadata.NULL_TENSOR,
    )
    return event
