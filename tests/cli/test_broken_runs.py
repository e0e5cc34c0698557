"""Broken runs next to healthy ones."""

import pytest

from helpers.command_line import error_line, invoke
from helpers.run_folders import write_run


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("report", "[]"),
        ("figures", '{"method": "aqu'),
        ("table 2 --results", '{"data": "cifar10"}'),
    ],
)
def test_broken_run_is_skipped_with_a_warning(tmp_path, command, text):
    healthy, broken = (write_run(tmp_path / name, "laq", rounds=1) for name in ("a", "b"))
    (broken / "run.json").write_text(text)
    result = invoke(*command.split(), str(tmp_path))
    assert result.exit_code == 0
    (warning,) = result.stderr.splitlines()
    assert warning.startswith(f"Warning: skipped a run: {broken / 'run.json'} is not a valid ")
    (healthy / "run.json").write_text(text)
    assert f"{healthy / 'run.json'} is not a valid " in error_line(*command.split(), str(tmp_path))


def test_report_names_broken_runs(tmp_path):
    healthy, broken = (write_run(tmp_path / name, "laq", rounds=1) for name in ("a", "b"))
    (broken / "records.jsonl").write_text("{}\n")
    assert invoke("report", str(healthy), str(broken)).exit_code == 0
    page = (healthy / "report.html").read_text()
    assert f"Left out, not readable: {broken / 'records.jsonl'}, line 1, is not the record" in page


def test_nothing_is_archived_if_one_run_is_broken(tmp_path):
    write_run(tmp_path / "runs" / "a")
    (write_run(tmp_path / "runs" / "b") / "run.json").write_text("{}")
    said = error_line("archive", str(tmp_path / "runs"), str(tmp_path / "kept"))
    assert "run.json is not a valid run file: it names no method" in said
    assert not (tmp_path / "kept").exists()
