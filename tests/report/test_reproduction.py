"""Synthetic runs next to the paper's numbers."""

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

from aquila.report.paper import paper_rows
from aquila.report.reproduction import MethodLine, method_lines
from aquila.report.reproduction_view import csv_text, markdown, screen_table
from aquila.report.runs import find_runs
from aquila.sim.archive import archive_contents, write_archive
from helpers.fake_records import fake_record, write_fake_run

GIB = 2**30
(ROW,) = [row for row in paper_rows(2) if row.title == "CIFAR-10, IID"]
(TEXT,) = [row for row in paper_rows(2) if row.title == "WikiText-2, IID"]


def records(rounds: int, uplink: int = GIB, **changes: object) -> list:
    return [
        fake_record(
            n, uplink_bytes=uplink, paper_bits=16 * uplink, downlink_bytes=3 * GIB,
            metrics={"test_accuracy": 0.75, "last_minibatch_train_accuracy": 0.96875}, **changes,
        )
        for n in range(rounds)
    ]  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_fake_run(tmp_path / "a" / "1", "aquila", records(40))
    write_fake_run(tmp_path / "a" / "2", "qsgd", records(40, 4 * GIB), batch_size=250)
    write_fake_run(tmp_path / "b", "laq", records(20, GIB // 2))
    write_fake_run(tmp_path / "c", "laq", records(10, GIB // 2))
    write_fake_run(tmp_path / "d", "fedavg", records(40, 8 * GIB))
    write_fake_run(tmp_path / "e", "aquila b_min=2", records(40))
    write_fake_run(tmp_path / "f", "qsgd", records(200, 4 * GIB), seed=1)
    write_fake_run(tmp_path / "g", "marina", records(3), devices=7)
    write_fake_run(tmp_path / "h", "marina", [])
    return tmp_path


def by_method(results: Path) -> dict[str, MethodLine]:
    return {line.method: line for line in method_lines(ROW, find_runs(results))}


def test_printed_methods_come_first_then_other_runs(results):
    assert list(by_method(results)) == [
        "qsgd", "qsgd (seed 1)", "adaquantfl", "laq", "ladaq", "lena_tables", "marina", "aquila",
        "fedavg", "aquila b_min=2",
    ]  # fmt: skip


def test_line_sums_the_records(results):
    qsgd = by_method(results)["qsgd"]
    assert (qsgd.rounds, qsgd.test, qsgd.last_minibatch) == (40, 75, 96.875)
    assert (qsgd.printed, qsgd.printed_gib) == (93.38, 15.61)
    assert (qsgd.paper_gib, qsgd.uplink_gib, qsgd.downlink_gib) == (320, 160, 120)
    assert (qsgd.uploads, qsgd.skips) == (40, 40)
    assert qsgd.differs == ("batch_size 250, not 256",)


def test_savings_cover_the_rounds_that_both_ran(results):
    found = by_method(results)
    assert found["qsgd"].printed_saving == pytest.approx(1 - 4.59 / 15.61)
    assert found["qsgd"].uplink_saving == found["qsgd"].paper_saving == 0.75
    assert found["fedavg"].uplink_saving == 0.875
    assert found["fedavg"].printed_saving is None
    assert found["laq"].uplink_saving == -1  # 20 rounds of each
    for name in ("qsgd (seed 1)", "aquila", "aquila b_min=2"):  # another seed, or AQUILA itself
        assert found[name].uplink_saving is None


def test_runs_with_both_values_of_rows_are_shown(tmp_path):
    (row,) = [row for row in paper_rows(2) if row.title == "CIFAR-10, Non-IID"]
    setting = {"split": "classes:2", "mask_classes": True}
    for folder, label, uplink, more in (
        ("a", "aquila", GIB, {}), ("b", "aquila", 2 * GIB, {"rows": "owners"}),
        ("c", "laq range=tensor", 4 * GIB, {"rows": "owners"}),
    ):  # fmt: skip
        write_fake_run(tmp_path / folder, label, records(5, uplink), **setting, **more)
    found = {line.method: line for line in method_lines(row, find_runs(tmp_path)) if line.rounds}
    assert set(found) == {
        "aquila (rows all)", "aquila (rows owners)", "laq range=tensor (rows owners)"
    }  # fmt: skip
    assert found["aquila (rows all)"].differs == ("rows all, not owners",)
    assert found["aquila (rows owners)"].differs == ()
    # compared with the run of AQUILA that has the same rows
    assert found["laq range=tensor (rows owners)"].uplink_saving == 0.5


def test_method_without_run_keeps_its_printed_numbers(results):
    marina = by_method(results)["marina"]
    assert marina.rounds is None
    assert marina.uplink_gib is None
    assert (marina.printed, marina.printed_gib) == (94.12, 16.28)


def test_longest_run_of_method_and_seed_counts(results):
    assert by_method(results)["laq"].rounds == 20


def test_larger_comparison_is_preferred_to_longer_run(results):
    write_fake_run(results / "alone" / "aquila", "aquila", records(100))
    write_fake_run(results / "alone" / "marina", "marina", records(100))
    write_fake_run(results / "a" / "3", "laq", records(30))
    found = by_method(results)
    assert {name: found[name].rounds for name in ("aquila", "laq", "marina")} == {
        "aquila": 40, "laq": 30, "marina": 100,
    }  # fmt: skip


def test_language_models_are_measured_by_perplexity(tmp_path):
    run = [fake_record(0, metrics={"perplexity": 1.7, "test_accuracy": 0.9})]
    write_fake_run(
        tmp_path / "x", "laq", run, data="wikitext2", model="transformer", split="blocks:100",
        batch_size=10,
    )  # fmt: skip
    (laq,) = [line for line in method_lines(TEXT, find_runs(tmp_path)) if line.method == "laq"]
    assert (laq.test, laq.last_minibatch, laq.printed) == (1.7, None, 1.72)


def shown(results: Path) -> list[str]:
    text = io.StringIO()
    made = method_lines(ROW, find_runs(results))
    Console(file=text, width=100).print(screen_table(ROW, made))
    return text.getvalue().splitlines()


def test_screen_table_fits_in_100_columns(results):
    found = shown(results)
    assert all(len(line) <= 100 and "…" not in line for line in found)
    (qsgd,) = [line for line in found if line.split()[:1] == ["qsgd"] and " of " in line]
    assert qsgd.split() == [
        "qsgd", "40", "of", "200", "75.0", "96.9", "93.38", "320.00", "15.61", "160.00", "120.0",
        "40/40", "71%", "75%", "75%",
    ]  # fmt: skip
    assert [line.split()[1] for line in found if line.split()[:1] == ["qsgd"]] == ["40", "(seed"]
    assert any("adaquantfl" in line and "not run" in line for line in found)
    assert any(line.startswith("qsgd: batch_size 250, not 256") for line in found)


def test_csv_has_full_precision(results):
    made = method_lines(ROW, find_runs(results))
    rows = list(csv.DictReader(io.StringIO(csv_text([(ROW, made)]))))
    assert len(rows) == len(made)
    assert rows[0]["row"] == "CIFAR-10, IID"
    assert (rows[0]["rounds"], rows[0]["paper_rounds"]) == ("40", "200")
    assert float(rows[0]["last_minibatch"]) == 96.875
    assert rows[2]["uplink_gib"] == ""


def test_markdown_tables_have_equal_column_counts(results):
    text = markdown([(ROW, method_lines(ROW, find_runs(results)))])
    blocks = [block.splitlines() for block in text.split("\n\n")]
    tables = [block for block in blocks if block[0].startswith("|")]
    assert [table[0].split(" | ")[0] for table in tables] == ["| column", "| method"]
    for table in tables:
        assert len({line.count("|") for line in table}) == 1
    assert all(len(line) <= 100 for line in text.splitlines() if not line.startswith("|"))
    assert "| qsgd | 40 of 200 | 75.0 |" in text
    assert "| qsgd (seed 1) | 200 |" in text


def test_archived_runs_give_the_same_lines(results, tmp_path_factory):
    target = tmp_path_factory.mktemp("archived")
    for run in find_runs(results):
        write_archive(archive_contents(run.folder, target / run.folder.relative_to(results)))
    assert not list(target.rglob("*.jsonl"))
    assert method_lines(ROW, find_runs(target)) == method_lines(ROW, find_runs(results))


def test_binary_records_are_reported(tmp_path):
    folder = write_fake_run(tmp_path / "x", "laq", [fake_record(0)])
    (folder / "records.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(ValueError, match=r"records\.jsonl does not hold records: it is not text"):
        find_runs(tmp_path)


def test_broken_folders_are_reported(tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        find_runs(tmp_path / "none")
    folder = write_fake_run(tmp_path / "x", "laq", [fake_record(0)])
    (folder / "run.json").write_text("[]")
    with pytest.raises(ValueError, match=r"run\.json is not a valid run file"):
        find_runs(tmp_path)
