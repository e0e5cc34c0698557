"""Static figures: ticks at round numbers for any range."""

import re

import pytest

from aquila.report.page import read_runs
from aquila.report.page.charts import charts_for, line_styles
from aquila.report.page.split_svg import bars_svg, heat_map_svg
from aquila.report.page.svg import Axis, chart_svg
from helpers.run_folders import write_comparison


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize(
    "numbers", [[1, 2], [1e-9, 1e9], [5, 5], [0.001, 0.0011], [3, 1000], [1e-300, 1e-299]]
)
def test_axis_has_a_few_ticks_within_its_range(numbers, log):
    axis = Axis(numbers, 0, 100, log)
    ticks = axis.ticks()
    assert len(ticks) <= 12
    assert len(ticks) >= (0 if log else 2)
    assert all(-1e-6 <= axis.position(tick) <= 100 + 1e-6 for tick in ticks)
    assert all(-1e-6 <= axis.position(number) <= 100 + 1e-6 for number in numbers)


def test_linear_axis_accepts_negative_numbers():
    assert 0 <= Axis([-3, -1], 0, 100, log=False).position(-2) <= 100


def test_every_run_has_a_line_with_its_own_style(tmp_path):
    runs = read_runs([write_comparison(tmp_path / "runs")]).runs
    figures, labels = charts_for(runs), {run.label for run in runs}
    assert [c.column for c in figures] == ["loss", "test_accuracy", "uplink", "level", "ratio"]
    assert re.search(r">\d+%</text>", chart_svg(figures[1], runs, labels))
    drawn = chart_svg(figures[0], runs, labels)
    assert "%</text>" not in drawn
    assert drawn.count("<polyline") == 4
    assert max(drawn.index("line ink"), drawn.index("line blue")) < drawn.index("line aquila")
    assert len(set(line_styles(runs))) == 4
    assert [style.colour for style in line_styles(runs)] == ["aquila", "aquila", "ink", "blue"]


def test_bars_and_maps_stay_small_for_many_devices():
    assert len(bars_svg([5] * 100, "x")) < 5_000
    assert len(heat_map_svg([[1] * 100] * 100, "x")) < 300_000
    assert "shade5" in heat_map_svg([[9, 0], [0, 1]], "x")
    assert "nan" not in bars_svg([0, 0], "no samples")
