"""TensorBoard's own reader reads what was logged."""

import builtins
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aquila.report.trackers import RunTracking, TrackedRun, round_metrics
from aquila.runtime.install_hint import install_hint
from aquila.sim.records import Record, read_records
from helpers.command_line import error_line, output
from helpers.fake_records import fake_record

pytest.importorskip("tensorboard", reason="needs the extra: pip install -e '.[tensorboard]'")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from aquila.report.trackers.tensorboard import TensorBoard

RECORDS = [fake_record(round) for round in range(6)]


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = read(folder)
    tags = events.Tags()["scalars"]
    # sorted: files of one second are read by name, and the 10th name sorts before the 9th
    return {tag: sorted((s.step, s.value) for s in events.Scalars(tag)) for tag in tags}


def expected(records: list[Record]) -> dict[str, list[tuple[int, Any]]]:
    found: dict[str, list[tuple[int, Any]]] = {}
    sent = 0
    for record in records:
        sent += record.uplink_bytes
        for name, value in round_metrics(record, sent).items():
            found.setdefault(name, []).append((record.round, pytest.approx(value, rel=1e-6)))
    return found


def track(folder: Path, records: list[Record], before: int = 0) -> None:
    run = TrackedRun("laq", {"alpha": 0.5, "data": "digits", "augment": False})
    tracking = RunTracking([TensorBoard(folder)], run, resume=before > 0, warn=pytest.fail)
    tracking.begin(records[:before])
    for record in records[before:]:
        tracking.log(record)
    tracking.close(True)


def test_logged_run_equals_its_records(tmp_path):
    out, board = tmp_path / "run", tmp_path / "board"
    output(
        "run", "-m", "aquila:b_min=2", "--rounds", "5", "--out", str(out),
        "--tensorboard", str(board),
    )  # fmt: skip
    assert curves(board / "aquila_b_min=2") == expected(read_records(out))


def test_settings_become_hyperparameters(tmp_path):
    track(tmp_path, RECORDS)
    content = read(tmp_path / "laq").summary_metadata[metadata.SESSION_START_INFO_TAG]
    info = metadata.parse_session_start_info_plugin_data(content.plugin_data.content)
    assert info.hparams["alpha"].number_value == 0.5
    assert info.hparams["data"].string_value == "digits"
    assert info.hparams["augment"].HasField("bool_value")


def test_resumed_run_continues_the_same_curves(tmp_path):
    out, board = tmp_path / "run", tmp_path / "board"
    arguments = ("-m", "laq", "--out", str(out), "--tensorboard", str(board))
    output("run", *arguments, "--rounds", "4")
    output("run", *arguments, "--rounds", "7", "--resume")
    assert curves(board / "laq") == expected(read_records(out))


def test_rounds_repeated_after_a_crash_are_not_duplicated(tmp_path):
    track(tmp_path, RECORDS[:5])
    again = [fake_record(round, loss=9.0 + round) for round in range(6)]
    track(tmp_path, RECORDS[:3] + again[3:], before=3)
    assert curves(tmp_path / "laq") == expected(RECORDS[:3] + again[3:])


@pytest.mark.parametrize("known", [0, 2])
def test_rounds_run_without_tracker_are_logged_later(tmp_path, known):
    if known:
        track(tmp_path, RECORDS[:known])
    track(tmp_path, RECORDS, before=4)
    assert curves(tmp_path / "laq") == expected(RECORDS)


def test_finished_run_can_be_logged_later(tmp_path):
    out, board = tmp_path / "run", tmp_path / "board"
    output("run", "-m", "laq", "--rounds", "3", "--out", str(out))
    output(
        "run", "-m", "laq", "--rounds", "3", "--out", str(out), "--resume",
        "--tensorboard", str(board),
    )  # fmt: skip
    assert len(curves(board / "laq")["loss"]) == 3


def test_existing_run_is_kept_without_overwrite(tmp_path):
    arguments = ("run", "-m", "laq", "--rounds", "2", "--tensorboard", str(tmp_path / "board"))
    output(*arguments)
    assert "deletes it, or choose another folder" in error_line(*arguments)
    output(*arguments, "--overwrite")
    assert [step for step, _ in curves(tmp_path / "board" / "laq")["loss"]] == [0, 1]
    (tmp_path / "file").write_text("")
    assert "is a file, not a folder" in error_line(
        "run", "--rounds", "2", "--tensorboard", str(tmp_path / "file")
    )


def test_writer_prints_nothing_and_imports_no_tensorflow(tmp_path):
    code = (
        "import sys, json; from pathlib import Path;"
        "from aquila.report.trackers import TrackedRun;"
        "from aquila.report.trackers.tensorboard import TensorBoard;"
        f"run = TensorBoard(Path({str(tmp_path)!r})).open(TrackedRun('x', {{'a': 1}}), False);"
        "run.known_rounds(0); run.log(0, {'loss': 1.0}); run.close(True);"
        "print(json.dumps(['tensorflow' in sys.modules, 'torch.utils.tensorboard' in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [False, False]
    assert done.stderr == ""


def test_missing_extra_is_named(monkeypatch, tmp_path):
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("tensorboard"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=re.escape(install_hint("tensorboard"))):
        TensorBoard(tmp_path)
