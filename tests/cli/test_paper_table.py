from pathlib import Path

import pytest

from helpers.command_line import error_line, invoke, output
from helpers.fake_records import fake_record, write_fake_run

RESULTS = str(Path(__file__).parent.parent.parent / "results")


@pytest.mark.parametrize(("number", "rows"), [("2", 8), ("3", 5)])
def test_tables_show_the_committed_runs(number, rows):
    text = output("table", number, "--results", RESULTS)
    assert text.count("K = ") == rows
    assert "not run" in text
    assert {"2": "24 of 200", "3": "16 of 200"}[number] in text


@pytest.mark.parametrize("form", ["--csv", "--markdown"])
def test_csv_and_markdown(tmp_path, form):
    write_fake_run(tmp_path / "run", "aquila", [fake_record(n) for n in range(200)])
    text = output("table", "2", "--results", str(tmp_path), form)
    assert text.endswith("\n")
    assert "aquila" in text
    assert {"--csv": "table,row,", "--markdown": "| method |"}[form] in text


def test_help_explains_which_runs_belong_to_a_row():
    text = " ".join(output("table", "--help").split())
    for word in (
        "for AQUILA the same beta",
        "all samples and devices",
        "lose no replies",
        "whole models",
    ):
        assert word in text


def test_invalid_arguments_give_one_sentence(tmp_path):
    assert "there is no folder" in error_line("table", "2", "--results", str(tmp_path / "none"))
    assert "'4' is not one of '2', '3'" in invoke("table", "4").output
    assert "there is no folder" in error_line("figures", str(tmp_path / "none"))
    assert "there is no run in" in error_line("figures", str(tmp_path))
