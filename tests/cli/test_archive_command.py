"""`aquila archive` as users see it."""

import json
from pathlib import Path

import pytest

from aquila.report.units import format_bytes
from helpers.command_line import error_line, output
from helpers.run_folders import draw_only, write_comparison, write_run

ARCHIVED = ["records.jsonl.gz", "run.json", "split.json.gz"]


def files(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "run", rounds=40)
    (folder / "checkpoint.npz").write_bytes(b"large")
    (folder / "report.html").write_text("a page")
    return folder


def test_archive_leaves_out_checkpoints_and_reports(run, tmp_path):
    target = tmp_path / "results" / "mine"
    text = output("archive", str(run), str(target))
    assert list(files(target)) == ARCHIVED
    size = sum(len(content) for content in files(target).values())
    assert text == f"{target}: 40 rounds, {format_bytes(size)}\n"
    assert size < (run / "records.jsonl").stat().st_size / 5
    assert (target / "run.json").read_bytes() == (run / "run.json").read_bytes()


def test_archive_keeps_the_folder_structure(tmp_path):
    runs = write_comparison(tmp_path / "runs" / "first")
    write_run(tmp_path / "runs" / "empty", rounds=0)
    (runs / "loss_against_uplink.png").write_bytes(b"png")
    text = output("archive", str(tmp_path / "runs"), str(tmp_path / "results"))
    names = ["aquila", "aquila_b_min=2", "fedsgd", "qsgd"]
    assert list(files(tmp_path / "results")) == [f"first/{n}/{k}" for n in names for k in ARCHIVED]
    assert text.splitlines()[-1].startswith("4 runs, ")


def test_archiving_twice_or_archiving_an_archive_changes_nothing(run, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    printed = output("archive", str(run), str(first))
    before = files(first)
    assert output("archive", str(run), str(first)) == printed
    output("archive", str(first), str(second))
    assert files(first) == before == files(second)


def test_missing_files_of_an_archive_are_added(run, tmp_path):
    target = tmp_path / "kept"
    output("archive", str(run), str(target))
    whole = files(target)
    (target / "split.json.gz").unlink()
    output("archive", str(run), str(target))
    assert files(target) == whole


def test_another_run_is_not_overwritten(tmp_path):
    runs, other, target = (tmp_path / name for name in ("runs", "other", "target"))
    write_run(runs / "a")
    write_run(runs / "b")
    write_run(other / "b", rounds=13)
    output("archive", str(other), str(target))
    before = files(target)
    message = error_line("archive", str(runs), str(target))
    assert f"{target / 'b' / 'run.json'} differs from the run in {runs / 'b'}" in message
    assert files(target) == before


def test_archive_of_a_run_that_grew_is_not_overwritten(run, tmp_path):
    target, records = tmp_path / "kept", (run / "records.jsonl").read_text()
    (run / "records.jsonl").write_text("".join(records.splitlines(keepends=True)[:30]))
    assert "30 rounds" in output("archive", str(run), str(target))
    (run / "records.jsonl").write_text(records)
    assert "records.jsonl.gz differs from" in error_line("archive", str(run), str(target))


def test_truncated_last_line_is_left_out(run, tmp_path):
    output("archive", str(run), str(tmp_path / "one"))
    with (run / "records.jsonl").open("a") as file:
        file.write('{"round": 40, "lo')
    output("archive", str(run), str(tmp_path / "two"))
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_invalid_targets_give_one_sentence(run, tmp_path):
    assert "there is no folder" in error_line(
        "archive", str(tmp_path / "none"), str(tmp_path / "x")
    )
    (tmp_path / "bare").mkdir()
    assert "there is no run in" in error_line(
        "archive", str(tmp_path / "bare"), str(tmp_path / "x")
    )
    for inside in (run, run / "kept"):
        assert "choose a folder outside it" in error_line("archive", str(run), str(inside))
    (tmp_path / "file").touch()
    assert "is a file, not a folder" in error_line("archive", str(run), str(tmp_path / "file"))
    working = write_run(tmp_path / "working", rounds=40)
    assert "a run that is not archived" in error_line("archive", str(run), str(working))
    assert not (tmp_path / "x").exists()


def test_run_with_a_damaged_record_is_not_archived(run, tmp_path):
    (run / "records.jsonl").write_text("{}\n")
    assert "is not the record of round 0" in error_line("archive", str(run), str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()


def test_report_figures_and_table_read_archived_runs(tmp_path, monkeypatch):
    draw_only(monkeypatch, "loss_against_bits", "levels_over_time")
    runs, archived = write_comparison(tmp_path / "runs"), tmp_path / "kept"
    output("archive", str(runs), str(archived))
    shown = []
    for folder in (runs, archived):
        pages = tmp_path / "page.html", tmp_path / "drawn"
        output("report", str(folder), "--out", str(pages[0]))
        output("figures", str(folder), "--out", str(pages[1]))
        table = output("table", "2", "--results", str(folder), "--csv")
        shown.append((pages[0].read_text(), files(pages[1]), table))
    assert shown[0] == shown[1]


def test_an_archived_run_is_neither_resumed_nor_overwritten_by_accident(tmp_path):
    runs, archived = tmp_path / "runs", tmp_path / "kept"
    again = ("run", "--rounds", "2", "--out", str(archived))
    output("run", "--rounds", "2", "--out", str(runs))
    output("archive", str(runs), str(archived))
    before = files(archived)
    assert "holds records but no checkpoint to resume from" in error_line(*again, "--resume")
    assert "already holds a run" in error_line(*again)
    assert files(archived) == before
    output(*again, "--overwrite")
    assert sorted(files(archived)) == [
        "best.safetensors", "checkpoint.npz", "model.safetensors", "records.jsonl", "run.json",
        "split.json", "times.jsonl",
    ]  # fmt: skip
    assert json.loads((archived / "run.json").read_text())["rounds"] == 2
