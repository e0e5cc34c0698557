import io
import re
from dataclasses import replace

import pytest
import torch
from rich.console import Console

import aquila
from aquila.report.labelled_run import LabelledRun
from aquila.report.results_table import dense_bytes, results_table
from helpers.problems import ridge

PROBLEM = ridge(devices=4, dimension=25)
FLEET = aquila.Fleet.uniform(25, 4)


def result(name: str, downlink_error: float = 0.0, **parameters: object) -> LabelledRun:
    method = aquila.create(name, alpha=0.1 / PROBLEM.smoothness(), **parameters)
    options = aquila.RunOptions(downlink_error=downlink_error)
    run = aquila.simulate(method, torch.zeros(25), PROBLEM.devices, rounds=5, options=options)
    return LabelledRun(name, run.records)


def render(*results: LabelledRun) -> str:
    text = io.StringIO()
    Console(file=text, width=120).print(results_table(results, FLEET))
    return text.getvalue()


def test_result_sums_the_records():
    qsgd = result("qsgd")
    assert qsgd.uploads == 20
    assert qsgd.skips == 0
    assert qsgd.mean_level == 6
    assert qsgd.paper_bits == 20 * 6 * 25
    assert qsgd.uplink_bytes == sum(r.uplink_bytes for r in qsgd.records)


def test_uncompressed_run_saves_nothing():
    fedsgd = result("fedsgd")
    assert dense_bytes(fedsgd, FLEET) == fedsgd.uplink_bytes
    assert "1.0 x" in render(fedsgd)


def test_both_directions_are_a_column_if_models_are_coded():
    whole, coded = result("qsgd"), result("qsgd", downlink_error=0.5)
    dense = 2 * dense_bytes(coded, FLEET)
    text = render(coded)
    assert f"{dense / (coded.uplink_bytes + coded.downlink_bytes):.1f} x" in text
    assert "both: dense bytes of uplink and downlink" in text
    assert "both" not in render(whole)


def test_run_with_rising_loss_is_listed():
    records = result("fedsgd").records
    rising = [replace(records[0], round=n, loss=2.0 + n) for n in range(12)]
    falling = [replace(records[0], round=n, loss=20.0 - n) for n in range(12)]
    text = render(
        LabelledRun("up", rising), LabelledRun("down", falling), LabelledRun("short", rising[:3])
    )
    assert "Loss above its first value: up." in text


def with_accuracies(run: LabelledRun, *accuracies: float) -> LabelledRun:
    pairs = zip(run.records, accuracies, strict=True)
    records = [replace(record, metrics={"test_accuracy": value}) for record, value in pairs]
    return LabelledRun(run.label, records)


def test_accuracy_at_the_end_is_compared_with_dense_uploads():
    dense = with_accuracies(result("fedsgd"), 0.5, 0.6, 0.8, 0.7, 0.9)
    sparse = with_accuracies(result("topk"), 0.5, 0.6, 0.75, 0.65, 0.8)
    assert dense.final_metric("test_accuracy") == pytest.approx(0.7)
    lines = {
        line.split()[0]: line.split() for line in render(sparse, dense).splitlines() if line.strip()
    }
    assert lines["method"][1:4] == ["accuracy", "vs", "dense"]
    assert lines["topk"][1:3] == ["80.0%", "-4.0"]
    assert lines["fedsgd"][1:3] == ["90.0%", "+0.0"]
    assert "vs dense: points of accuracy" in render(sparse, dense)
    for alone in ((dense,), (sparse, with_accuracies(result("qsgd"), *[0.5] * 5))):
        assert "vs dense" not in render(*alone)


def test_quality_at_the_end_averages_five_evaluations():
    records = result("fedsgd").records[:1] * 7
    run = with_accuracies(LabelledRun("x", records), 9.0, 9.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    assert run.final_metric("test_accuracy") == pytest.approx(0.3)
    assert run.final_metric("perplexity") is None


def test_last_metric_is_the_latest_value():
    records = result("fedsgd").records
    judged = [replace(records[0], metrics={"a": 1.0}), replace(records[1], metrics={"a": 2.0})]
    assert LabelledRun("x", [*judged, *records[2:]]).last_metric("a") == 2.0
    assert LabelledRun("x", records).last_metric("a") is None


def test_time_and_energy_are_columns_with_a_link_model():
    plain = result("qsgd")
    timed = LabelledRun("qsgd", [replace(r, seconds=360.0, joules=0.5) for r in plain.records])
    text = render(plain, timed)
    assert re.search(r"saving +time +energy", text)
    assert "30.0 min" in text
    assert "2.50 J" in text
    assert "simulated by the link model" in text
    assert "energy" not in render(plain)


def test_run_without_rounds_has_a_row():
    assert "nothing" in render(LabelledRun("nothing", [], stopped=True))


def test_narrow_terminal_keeps_method_names():
    text = io.StringIO()
    Console(file=text, width=60).print(results_table([result("qsgd")], FLEET, width=60))
    assert "qsgd" in text.getvalue()
    assert "saving" in text.getvalue()
    assert all(len(line) <= 60 for line in text.getvalue().splitlines())


@pytest.mark.parametrize("name", ["aquila", "lag"])
def test_mean_level_ignores_skips(name):
    levels = [level for r in result(name).records for level in r.levels.values()]
    assert result(name).mean_level == pytest.approx(sum(levels) / len(levels))
