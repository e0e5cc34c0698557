"""Broken runs beside healthy ones."""

import pytest

from recorded import write_run
from terminal import call, mistake


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("report", "[]"),
        ("figures", '{"method": "aqu'),
        ("table 2 --results", '{"data": "cifar10"}'),
    ],
)
def test_a_broken_run_is_named_and_its_neighbours_are_shown(tmp_path, command, text):
    healthy, broken = (write_run(tmp_path / name, "laq", rounds=1) for name in ("a", "b"))
    (broken / "run.json").write_text(text)
    result = call(*command.split(), str(tmp_path))
    assert result.exit_code == 0
    (warning,) = result.stderr.splitlines()
    assert warning.startswith(f"Warning: a run is left out: {broken / 'run.json'} does not ")
    (healthy / "run.json").write_text(text)
    assert f"{healthy / 'run.json'} does not " in mistake(*command.split(), str(tmp_path))


def test_a_page_says_which_runs_are_broken(tmp_path):
    healthy, broken = (write_run(tmp_path / name, "laq", rounds=1) for name in ("a", "b"))
    (broken / "records.jsonl").write_text("{}\n")
    assert call("report", str(healthy), str(broken)).exit_code == 0
    page = (healthy / "report.html").read_text()
    assert f"Left out, since broken: {broken / 'records.jsonl'}, line 1, is not the record" in page


def test_nothing_is_kept_beside_a_broken_run(tmp_path):
    write_run(tmp_path / "runs" / "a")
    (write_run(tmp_path / "runs" / "b") / "run.json").write_text("{}")
    said = mistake("keep", str(tmp_path / "runs"), str(tmp_path / "kept"))
    assert "run.json does not tell what was run: it names no method" in said
    assert not (tmp_path / "kept").exists()
