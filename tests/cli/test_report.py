"""`aquila report` as users see it."""

import re
import shlex

import pytest

from aquila.cli.reproduce import command_lines
from aquila.sim.setting import Setting
from helpers.command_line import error_line, output
from helpers.run_folders import write_comparison, write_run


def test_report_is_written_to_the_first_folder(tmp_path):
    folder = write_comparison(tmp_path / "runs")
    assert output("report", str(folder)).strip() == str(folder / "report.html")
    assert "<h1>aquila reaches" in (folder / "report.html").read_text()


def test_report_of_several_folders_is_written_to_out(tmp_path):
    first = write_run(tmp_path / "a")
    second = write_run(tmp_path / "b", "laq")
    out = tmp_path / "new" / "page.html"
    assert str(out) in output("report", str(first), str(second), "--out", str(out))
    assert "report of 2 runs" in out.read_text()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "holds no run"),
        (b"", "run without rounds; there is nothing to report yet"),
        (b"\x80\n", "does not hold records"),
        (b"{}\n", "is not the record of round 0"),
    ],
)
def test_folder_without_valid_records_gives_one_sentence(tmp_path, content, sentence):
    if content is not None:
        (tmp_path / "records.jsonl").write_bytes(content)
    assert sentence in error_line("report", str(tmp_path))


def test_folder_is_required(tmp_path):
    assert "DIR" in error_line("report")
    assert "is not a folder" in error_line("report", str(tmp_path / "nowhere"))


def test_compare_reports_only_its_own_runs(tmp_path):
    write_run(tmp_path / "older", "an older run")
    text = output(
        "compare", "-m", "aquila", "-m", "laq:bits=5", "--rounds", "3", "--devices", "5",
        "--out", str(tmp_path),
    )  # fmt: skip
    assert "report.html" in text
    page = (tmp_path / "report.html").read_text()
    assert "report of 2 runs" in page
    assert "an older run" not in page
    assert "Map of 5 devices by 10 classes" in page
    assert "aquila compare -m aquila -m laq:bits=5 --devices 5 --rounds 3 --out runs/again" in page


def test_command_line_in_the_report_reproduces_the_run(tmp_path):
    asked = ["run", "-m", "aquila:b_min=2", "--rounds", "2", "--seed", "3", "--split", "iid"]
    output(*asked, "--out", str(tmp_path / "first"))
    output("report", str(tmp_path / "first"))
    page = (tmp_path / "first" / "report.html").read_text()
    line = shlex.split(re.search(r"aquila (run .*?)\n", page)[1])
    output(*line[: line.index("--out")], "--out", str(tmp_path / "again"))
    first, again = (tmp_path / name / "records.jsonl" for name in ("first", "again"))
    assert first.read_bytes() == again.read_bytes()


def test_parameters_of_the_experiment_are_on_the_command_line():
    setting = Setting(alpha=0.1, compile_model=True).to_dict()
    given = {"alpha": 0.1, "beta": 0.5, "b_min": 1, "level_rule": "paper", "work": "gradient"}
    facts = {"method": "aquila", "parameters": given, **setting}
    line, last = command_lines([facts])
    assert (
        line == "aquila run -m aquila:beta=0.5 --alpha 0.1 --compile-model true --out runs/again/1"
    )
    assert last == "aquila report runs/again"


def test_missing_fields_take_their_defaults():
    assert command_lines([{"method": "laq bits=5", "data": "digits", "rounds": 7}]) == [
        "aquila run -m laq:bits=5 --rounds 7 --out runs/again/1",
        "aquila report runs/again",
    ]


@pytest.mark.parametrize(
    "facts", [{}, {"method": "aquila"}, {"method": 3, "data": "digits"},
              {"method": "aquila", "data": "digits", "rounds": "many"}]
)  # fmt: skip
def test_incomplete_runs_have_no_command_line(facts):
    assert command_lines([facts]) == []


def test_runs_of_different_settings_have_one_line_each():
    facts = [{"method": "aquila", "data": "digits", "seed": seed} for seed in (0, 1, 1)]
    assert len(command_lines(facts)) == 3
    assert "--seed 1 --out runs/again/2" in command_lines(facts)[1]
