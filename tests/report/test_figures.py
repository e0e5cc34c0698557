"""Figures from synthetic records: the data that is drawn, not the looks."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from aquila.methods import METHODS
from aquila.report.beta_sweep import loss_by_beta, quality_by_beta
from aquila.report.bits_per_coordinate import MARKERS, bytes_against_width, width_and_real_bits
from aquila.report.costs import ENERGY, TIME
from aquila.report.curves import Series, draw_curves
from aquila.report.figures import (
    FIGURES,
    bits_per_round,
    error_ratio,
    loss_against_bits,
    quality_against,
    quality_against_uplink,
)
from aquila.report.labelled_run import LabelledRun
from aquila.report.levels import level_map, levels_over_time
from aquila.report.style import line_styles
from helpers.command_line import output
from helpers.fake_records import fake_record, write_fake_run
from helpers.run_folders import draw_only

RECORDS = [fake_record(n) for n in range(12)]
RESULTS = [LabelledRun("aquila", RECORDS), LabelledRun("qsgd", RECORDS)]
TIMED = [fake_record(n, seconds=1800.0, joules=4.0, late=0) for n in range(12)]
NOTHING = [LabelledRun("qsgd", [fake_record(0, uploads=0, paper_bits=0, levels={}, metrics={})])]


def points(figure, line: int = 0) -> list[tuple[float, float]]:
    return [tuple(xy) for xy in figure.axes[0].lines[line].get_xydata()]


@pytest.fixture
def few_figures(monkeypatch):
    draw_only(monkeypatch, "bits_per_round", "loss_against_bits", "loss_by_beta")


def test_folder_gets_every_figure_it_has_data_for(tmp_path):
    for beta in ("0.1", "0.5"):
        write_fake_run(tmp_path / "runs" / beta, f"aquila beta={beta}", TIMED)
    write_fake_run(tmp_path / "runs" / "qsgd", "qsgd", TIMED)
    text = output("figures", str(tmp_path / "runs"), "--out", str(tmp_path / "out"))
    drawn = sorted((tmp_path / "out").iterdir())
    assert [path.stem for path in drawn] == sorted(FIGURES)
    assert all(str(path) in text for path in drawn)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


def test_quality_against_simulated_costs():
    timed = [LabelledRun("aquila", TIMED), LabelledRun("qsgd", RECORDS)]
    figure = quality_against(timed, TIME)
    assert points(figure) == [(0.5 * n, 50.0) for n in range(1, 13)]
    assert figure.axes[0].get_xlabel() == "simulated time, h"
    assert len(figure.axes[0].lines) == 1
    assert points(quality_against(timed, ENERGY))[-1] == (48.0, 50.0)
    assert quality_against(RESULTS, TIME) is None


@pytest.mark.usefixtures("few_figures")
def test_runs_of_different_folders_are_not_mixed(tmp_path):
    for name in ("a/laq", "a/qsgd", "b/laq"):
        write_fake_run(tmp_path / name, name[2:], RECORDS[:2])
    text = output("figures", str(tmp_path))
    for name in ("a", "b"):
        assert (tmp_path / "figures" / name / "bits_per_round.png").exists()
    assert "loss_by_beta" not in text


@pytest.mark.usefixtures("few_figures")
def test_run_folder_may_contain_other_runs(tmp_path):
    write_fake_run(tmp_path / "runs", "laq", RECORDS[:2])
    write_fake_run(tmp_path / "runs" / "qsgd", "qsgd", RECORDS[:2])
    output("figures", str(tmp_path / "runs"), "--out", str(tmp_path / "out"))
    for folder in ("out", "out/runs"):
        assert (tmp_path / folder / "loss_against_bits.png").exists()


@pytest.mark.usefixtures("few_figures")
def test_single_run_can_be_drawn(tmp_path):
    write_fake_run(tmp_path / "run", "laq", RECORDS[:2])
    output("figures", str(tmp_path / "run"))
    assert (tmp_path / "run" / "figures" / "loss_against_bits.png").exists()


@pytest.mark.parametrize("draw", FIGURES.values())
def test_runs_without_data_do_not_fail(draw):
    draw(NOTHING)
    draw(
        [
            LabelledRun("aquila beta=1", NOTHING[0].records),
            LabelledRun("aquila beta=2", RECORDS[:1]),
        ]
    )


def test_similar_values_keep_a_linear_scale():
    for largest, scale in ((2, "linear"), (200, "log")):
        figure = draw_curves([Series("x", [(1, 1), (2, largest)])], "x", "y", yscale="log")
        assert figure.axes[0].get_yscale() == scale


def test_loss_is_drawn_against_total_bits_sent():
    figure = loss_against_bits(RESULTS)
    assert points(figure)[2] == pytest.approx((3 * 4000 / 8, 1 / 3))
    assert figure.axes[0].get_xscale() == "log"


def test_bits_per_round_are_smoothed_and_may_be_zero():
    silent = [fake_record(n, paper_bits=4_000_000 * (n < 2)) for n in range(12)]
    figure = bits_per_round([LabelledRun("laq", silent)])
    assert points(figure)[:4] == [(1, 4), (2, 4), (3, 2), (4, 0)]
    assert figure.axes[0].get_yscale() == "symlog"


def test_quality_is_drawn_where_it_was_measured():
    some = [fake_record(n, metrics={"test_accuracy": 0.5} if n % 5 == 4 else {}) for n in range(10)]
    assert points(quality_against_uplink([LabelledRun("laq", some)])) == [
        (5 * 2**20, 50),
        (10 * 2**20, 50),
    ]
    text = [fake_record(0, metrics={"perplexity": 3.0, "test_accuracy": 0.5})]
    figure = quality_against_uplink([LabelledRun("laq", text)])
    assert points(figure) == [(2**20, 3)]
    assert figure.axes[0].get_ylabel() == "test perplexity"


def test_exact_runs_are_omitted_and_others_keep_their_colours():
    exact = LabelledRun("fedavg", [fake_record(0, error_ratio=0.0)])
    figure = error_ratio([exact, *RESULTS])
    assert [line.get_label() for line in figure.axes[0].lines] == ["aquila", "qsgd"]
    assert figure.axes[0].lines[1].get_color() == line_styles(["fedavg", "qsgd"])[1]["color"]
    assert error_ratio([exact]) is None


def test_sweep_is_sorted_by_beta():
    sweep = [LabelledRun(f"aquila beta={beta}", RECORDS) for beta in ("0.5", "2", "1e-1")]
    for figure in (loss_by_beta([*sweep, *RESULTS]), quality_by_beta([*sweep, *RESULTS])):
        labels = [line.get_label() for line in figure.axes[0].lines]
        assert [label.partition(":")[0] for label in labels] == ["β = 0.1", "β = 0.5", "β = 2"]
        widths = [line.get_linewidth() for line in figure.axes[0].lines]
        assert all(wide > narrow for wide, narrow in pairwise(widths))
    assert loss_by_beta(RESULTS) is quality_by_beta(RESULTS) is None


def test_level_map_distinguishes_levels_skips_and_no_reply():
    rounds = [
        fake_record(0, levels={0: 4, 1: 3}, uplink={0: 9, 1: 9}),
        fake_record(1, levels={1: 2}, uplink={0: 9, 1: 9}),
        fake_record(2, levels={2: 5}, uplink={2: 9}),
    ]
    expected = [[4, 0, np.nan], [3, 2, np.nan], [np.nan, np.nan, 5]]
    np.testing.assert_array_equal(level_map(LabelledRun("aquila", rounds)), expected)
    constant = LabelledRun("qsgd", [fake_record(0, levels={0: 6, 1: 6})])
    figure = levels_over_time([LabelledRun("aquila", rounds), constant])
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.images]
    assert titles == ["aquila"]
    assert levels_over_time([constant]) is None


def test_real_bits_per_coordinate():
    record = fake_record(0, levels={0: 4}, paper_bits=4000, uplink_bytes=250)
    assert width_and_real_bits(record) == (4, 2.0)  # 250 bytes for 1000 coordinates
    assert width_and_real_bits(fake_record(0, levels={})) is None
    figure = bytes_against_width([LabelledRun("aquila", [record]), *NOTHING])
    assert figure.axes[0].collections[0].get_offsets().tolist() == [[4, 2]]


def test_aquila_has_thick_lines_and_all_styles_differ():
    labels = ["aquila", "aquila b_min=2", "aquila_like", *(f"method n={n}" for n in range(12))]
    styles = line_styles(labels)
    widths = [style["linewidth"] for style in styles]
    assert min(widths[:2]) > max(widths[2:])
    looks = {(style["color"], str(style["linestyle"]), style["alpha"]) for style in styles}
    assert len(looks) == len(labels)
    assert styles[0]["color"] == styles[2]["color"] != styles[1]["color"]


def test_every_method_has_distinct_markers():
    record = fake_record(0, levels={0: 4}, paper_bits=4000, uplink_bytes=250)
    methods = ["qsgd", *(m for m in METHODS if m not in ("qsgd", "eden"))]
    methods.insert(
        len(MARKERS), "eden"
    )  # same colour as QSGD, and the same marker without the index
    figure = bytes_against_width([LabelledRun(method, [record]) for method in methods])
    dots = figure.axes[0].collections
    looks = {(*dot.get_facecolor()[0], dot.get_paths()[0].vertices.tobytes()) for dot in dots}
    assert len(looks) == len(methods) == len(METHODS)


def test_negative_values_keep_a_linear_scale():
    figure = draw_curves([Series("x", [(1, -1), (2, 2)])], "x", "y", yscale="log")
    assert figure.axes[0].get_yscale() == "linear"


@pytest.mark.usefixtures("few_figures")
def test_figures_create_missing_folders(tmp_path: Path):
    write_fake_run(tmp_path / "run", "laq", RECORDS[:1])
    output("figures", str(tmp_path / "run"), "--out", str(tmp_path / "a" / "b"))
    assert list((tmp_path / "a" / "b").iterdir())
