"""Runs that differ only in the seed become one run with a band."""

import pytest

from aquila.report.page import read_runs, render
from aquila.report.page.charts import charts_for, column_range
from aquila.report.page.measures import ACCURACY, LOSS, available_measures
from aquila.report.page.svg import chart_svg
from aquila.report.page.tiles import tiles_for
from helpers.run_folders import write_run


def write_seeds(folder, losses):
    for seed, loss in enumerate(losses):
        write_run(
            folder / f"laq{seed}",
            "laq",
            rounds=9 + seed,
            facts={"seed": seed, "rounds": 11},
            loss=loss,
            uplink_bytes=100 * (seed + 1),
        )


def test_seeds_are_averaged(tmp_path):
    write_seeds(tmp_path, [1.0, 2.0, 6.0])
    (run,) = read_runs([tmp_path]).runs
    assert (run.label, len(run.members), run.facts["seed"]) == ("laq", 3, "0, 1, 2")
    assert len(run.records) == 9
    assert LOSS.values(run) == [3.0] * 9
    assert run.result.uplink_bytes == 9 * 200
    assert column_range(run, "loss") == ([1.0] * 9, [6.0] * 9)
    assert '<polygon class="band' in chart_svg(charts_for([run])[0], [run], {"laq"})
    page = render(read_runs([tmp_path]))
    assert "mean of 3 seeds" in page
    assert "report of 3 runs" in page
    assert "3 ± 2.5" in page


def test_runs_that_differ_otherwise_stay_apart(tmp_path):
    write_run(tmp_path / "a", "laq", facts={"seed": 0})
    write_run(tmp_path / "b", "laq", facts={"seed": 1, "alpha": 0.1})
    write_run(tmp_path / "c", "laq", facts={"seed": 0, "alpha": 0.1, "rounds": 99})
    assert [run.members for run in read_runs([tmp_path]).runs] == [(), (), ()]


def test_every_metric_is_a_measure(tmp_path):
    metrics = {"rmse": 3.0, "macro_f1": 0.5, "r2_score": -1.0, "test_accuracy": 0.5}
    run = read_runs([write_run(tmp_path / "run", metrics=metrics)]).runs
    found = {m.key: (m.higher_is_better, m.is_fraction) for m in available_measures(run)}
    assert found == {
        "test_accuracy": (True, True), "rmse": (False, False), "macro_f1": (True, True),
        "r2_score": (True, False), "loss": (False, False),
    }  # fmt: skip
    assert [chart.column for chart in charts_for(run)][:3] == ["loss", "test_accuracy", "rmse"]
    assert 'data-chart="r2_score"' in render(read_runs([tmp_path / "run"]))


def test_regression_without_accuracy_has_a_headline(tmp_path):
    write_run(tmp_path / "run", metrics={"rmse": 3.0})
    assert "reaches a rmse of 3.15" in render(read_runs([tmp_path]))


def test_tiles_compare_with_dense_uploads(tmp_path):
    write_run(tmp_path / "a", "aquila", metrics={"test_accuracy": 0.9})
    write_run(tmp_path / "b", "fedsgd", metrics={"test_accuracy": 0.92}, uplink_bytes=1_000_000,
              downlink_bytes=0)  # fmt: skip
    runs = read_runs([tmp_path]).runs
    tiles = {tile.name: tile for tile in tiles_for(runs[0], runs[1], ACCURACY)}
    assert list(tiles) == ["test accuracy", "bytes up", "bytes both ways", "rounds", "devices"]
    assert tiles["test accuracy"].remark == "−2.0 points vs fedsgd"
    assert tiles["bytes up"].value == "211\u00a0KB"
    assert tiles["bytes up"].is_good
    assert "fedsgd" in tiles["bytes both ways"].remark
    assert [tile.remark for tile in tiles_for(runs[0], None, ACCURACY)][1:3] == ["", ""]


@pytest.mark.parametrize("count", [3, 30])
def test_featured_runs_are_few(tmp_path, count):
    for number in range(count):
        write_run(tmp_path / f"m{number}", f"m{number}", level=number + 2, rounds=3)
    shown = render(read_runs([tmp_path])).count("data-minor")
    assert (shown > 0) == (count == 30)
