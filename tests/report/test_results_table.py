import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console

import aquila
from aquila.report.results_table import RunResult, dense_bytes, results_table
from helpers.problems import ridge

PROBLEM = ridge(devices=4, dimension=25)
FLEET = aquila.Fleet.uniform(25, 4)


def result(name: str, **parameters: object) -> RunResult:
    method = aquila.create(name, alpha=0.1 / PROBLEM.smoothness(), **parameters)
    run = aquila.simulate(method, torch.zeros(25), PROBLEM.devices, rounds=5)
    return RunResult(name, run.records)


def render(*results: RunResult) -> str:
    text = io.StringIO()
    Console(file=text, width=120).print(results_table(results, FLEET))
    return text.getvalue()


def test_rows_add_up_the_records():
    qsgd = result("qsgd")
    assert qsgd.uploads == 20
    assert qsgd.skips == 0
    assert qsgd.mean_level == 6
    assert qsgd.paper_bits == 20 * 6 * 25
    assert qsgd.uplink_bytes == sum(r.uplink_bytes for r in qsgd.records)


def test_no_compression_saves_nothing():
    fedsgd = result("fedsgd")
    assert dense_bytes(fedsgd, FLEET) == fedsgd.uplink_bytes
    assert "1.0 x" in render(fedsgd)


def test_a_run_that_got_worse_is_named():
    records = result("fedsgd").records
    rising = [replace(records[0], round=n, loss=2.0 + n) for n in range(12)]
    falling = [replace(records[0], round=n, loss=20.0 - n) for n in range(12)]
    text = render(
        RunResult("up", rising), RunResult("down", falling), RunResult("short", rising[:3])
    )
    assert "Not trained: up." in text


def test_latest_metric_wins():
    records = result("fedsgd").records
    judged = [replace(records[0], metrics={"a": 1.0}), replace(records[1], metrics={"a": 2.0})]
    assert RunResult("x", [*judged, *records[2:]]).last_metric("a") == 2.0
    assert RunResult("x", records).last_metric("a") is None


def test_a_run_without_a_round_has_a_row_too():
    assert "nothing" in render(RunResult("nothing", [], stopped=True))


def test_narrow_terminals_keep_the_names_of_the_methods():
    text = io.StringIO()
    Console(file=text, width=60).print(results_table([result("qsgd")], FLEET, width=60))
    assert "qsgd" in text.getvalue()
    assert "saving" in text.getvalue()
    assert all(len(line) <= 60 for line in text.getvalue().splitlines())


@pytest.mark.parametrize("name", ["aquila", "lag"])
def test_levels_of_skips_do_not_count(name):
    levels = [level for r in result(name).records for level in r.levels.values()]
    assert result(name).mean_level == pytest.approx(sum(levels) / len(levels))
