"""The comparison of all methods: step sizes, summary, link costs, resuming and figures."""

import json
from argparse import Namespace
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

import pytest

from aquila.methods import METHODS

FOLDER = Path(__file__).parent.parent / "benchmarks"
QUALITY = [0.2, 0.5, 0.7, 0.8, 0.8, 0.9]


@pytest.fixture(autouse=True)
def benchmarks_on_path(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)


@pytest.fixture
def runs(benchmarks_on_path):
    return import_module("choosing_runs")


@pytest.fixture
def summary(benchmarks_on_path):
    return import_module("choosing_summary")


@pytest.fixture
def figures(benchmarks_on_path):
    return import_module("choosing_figures")


def case(runs, method="fedsgd", **changes):
    return replace(runs.Case("digits_mlp", "iid", method, (), 0, 0.5), **changes)


def fake_run(case, quality=QUALITY, train_loss=0.1, held_out=0.9, bytes_per_evaluation=100):
    counts = [bytes_per_evaluation * (n + 1) for n in range(len(quality))]
    presets = [case.preset] if case.preset else ["nb_iot", "lte", "mixed"]
    curve = {
        "rounds": [2 * (n + 1) for n in range(len(quality))],
        "quality": quality,
        "uplink_bytes": counts,
        "downlink_bytes": [10 * count for count in counts],
        "seconds": {name: [float(n) for n in counts] for name in presets},
        "joules": {name: [2.0 * n for n in counts] for name in presets},
    }
    return {
        **asdict(case),
        "options": dict(case.options),
        "parameters": {"alpha": case.alpha, **dict(case.options)},
        "work": "gradient",
        "dimension": 9610,
        "rounds": 12,
        "diverged": train_loss is None,
        "train_loss": train_loss,
        "held_out": held_out,
        "curve": curve,
        "machine": "a machine",
        "minutes": 0.1,
    }


def test_every_method_takes_part(runs):
    assert {method for method, _ in runs.variants(50)} == set(METHODS)
    assert ("dadaquant", (("norm", "l2"), ("phi", 5))) in runs.variants(50)
    assert runs.presets_of("adagq") == runs.PRESETS
    assert runs.presets_of("qsgd") == ("",)


def test_time_and_energy_are_those_of_a_run_with_the_link(runs, monkeypatch):
    task = runs.TASKS["digits_mlp"]
    options = replace(task.setting.options, evaluate_every=1)
    short = replace(task, setting=replace(task.setting, samples=100, rounds=3, options=options))
    monkeypatch.setitem(runs.TASKS, "digits_mlp", short)
    runs.load_problem.cache_clear()
    computed = runs.run_case(case(runs, "laq"), "")
    simulated = runs.run_case(case(runs, "laq", preset="mixed"), "")
    runs.load_problem.cache_clear()
    assert simulated["curve"]["uplink_bytes"] == computed["curve"]["uplink_bytes"]
    for quantity in ("seconds", "joules"):
        values = simulated["curve"][quantity]["mixed"]
        assert len(values) == 3
        assert values[0] > 0
        assert computed["curve"][quantity]["mixed"] == values


def test_step_size_is_the_largest_within_a_point_of_the_best(runs, summary):
    cases = [case(runs, task="cifar10_cnn", alpha=alpha) for alpha in (0.25, 0.5, 1.0, 2.0)]

    def choice(*qualities):
        pairs = zip(cases, qualities, strict=True)
        return summary.best_alpha({one: fake_run(one, held_out=q) for one, q in pairs}, cases)

    assert choice(0.90, 0.895, 0.88, None) == 0.5
    assert choice(0.80, 0.90, 0.90, 0.10) == 1.0
    assert choice(None, None, None, None) == 0.25
    assert summary.best_alpha({}, cases) is None


def test_step_size_without_held_out_images_has_the_lowest_training_loss(runs, summary):
    cases = [case(runs, alpha=alpha) for alpha in (0.25, 0.5, 1.0)]
    losses = dict(zip(cases, (0.3, 0.2, None), strict=True))
    done = {one: fake_run(one, train_loss=loss) for one, loss in losses.items()}
    assert summary.best_alpha(done, cases) == 0.5


def test_sign_method_tries_smaller_steps(runs, summary):
    tried = summary.tuning_cases("digits_mlp", "iid", ("signsgd", ()), 1.0, ("",))
    assert [one.alpha for one in tried] == [0.02, 0.00667]
    assert len(summary.tuning_cases("digits_mlp", "iid", ("fedsgd", ()), 1.0, ("",))) == 1
    (first, _) = summary.tuning_cases("digits_mlp", "iid", ("adagq", ()), 1.0, runs.PRESETS)
    assert first.preset == "mixed"


def test_level_counts_when_the_mean_of_three_evaluations_reaches_it(summary):
    assert summary.reached(QUALITY, 0.66) == 3
    assert summary.reached(QUALITY, 0.9) is None


def test_summary_compares_with_the_dense_run_of_the_same_seed(runs, summary, monkeypatch):
    monkeypatch.setattr(summary, "LEVEL_FRACTION", 0.9)
    dense, other = case(runs), case(runs, "laq", options=(("bits", 8),))
    done = {dense: fake_run(dense), other: fake_run(other, bytes_per_evaluation=1)}
    first, second = summary.summary_rows(done, [dense, other])
    assert first["quality_end"] == second["dense_quality_end"] == 0.74
    assert second["options"] == {"alpha": 0.5, "bits": 8}
    assert second["bytes_to_quality"] == {
        "level": 0.666, "uplink_bytes": 4, "downlink_bytes": 40, "rounds": 8,
    }  # fmt: skip
    assert second["links"]["lte"] == {
        "seconds": 6.0, "joules": 12.0, "seconds_to_quality": 4.0, "joules_to_quality": 8.0,
    }  # fmt: skip
    assert summary.summary_rows(done, [other]) == []


def test_diverged_run_without_evaluations_has_a_row(runs, summary):
    dense, lost = case(runs), case(runs, "laq")
    done = {dense: fake_run(dense), lost: fake_run(lost, quality=[], train_loss=None)}
    row = summary.summary_rows(done, [dense, lost])[1]
    assert (row["diverged"], row["quality_end"], row["uplink_bytes"]) == (True, None, 0)


def test_interrupted_comparison_runs_only_what_is_missing(runs, summary, tmp_path, monkeypatch):
    choosing = import_module("choosing")
    started = []
    monkeypatch.setattr(choosing, "run_case", lambda c, _: started.append(c) or fake_run(c))
    args = Namespace(out=tmp_path, only=["laq"], seeds=[0, 1], jobs=1, data_folder="")
    path = tmp_path / "runs_digits_mlp.jsonl"
    kept = case(runs, alpha=runs.TASKS["digits_mlp"].alphas[0])
    path.write_text(json.dumps(fake_run(kept)) + "\n" + '{"task": "digits_')
    choosing.Comparison("digits_mlp", args).finish()
    assert kept not in started
    # two grids of four, two step sizes of laq per split, and a second seed of two methods
    assert len(started) == len(set(started)) == 8 - 1 + 4 + 4
    assert set(summary.read_runs(path)) == {kept, *started}
    choosing.Comparison("digits_mlp", args).archive()
    assert not path.exists()
    choosing.Comparison("digits_mlp", args).finish()
    assert len(started) == 15
    assert choosing.write_summary(tmp_path, [0, 1]) == 8


def test_labels_show_the_options_that_differ(figures):
    rows = [
        {"method": "aquila", "options": {"alpha": 1.0, "beta": 0.1}},
        {"method": "aquila", "options": {"alpha": 0.3, "beta": 0.1, "level_rule": "tight"}},
        {"method": "laq", "options": {"alpha": 1.0, "bits": 8}},
    ]
    labels = [row["label"] for row in figures.with_labels(rows)]
    assert labels == ["aquila", "aquila level_rule=tight", "laq"]


def test_best_methods_are_labelled_front_by_front(figures):
    points = {"a": (1, 50.0), "b": (2, 70.0), "c": (3, 60.0), "d": (4, 71.0), "e": (5, 40.0)}
    assert figures.to_label(points, 5) == ["a", "b", "d", "c", "e"]
    assert figures.to_label(points, 2) == ["a", "b"]


def test_figures_are_drawn(runs, summary, figures, tmp_path):
    pytest.importorskip("matplotlib")
    cases = [
        case(runs, method, split=split, seed=seed)
        for method in ("fedsgd", "laq", "qsgd")
        for split in runs.SPLITS
        for seed in (0, 1)
    ]
    cases += [case(runs, "adagq", split=s, preset=p) for s in runs.SPLITS for p in runs.PRESETS]
    low = [0.1] * 6
    done = {c: fake_run(c, quality=low if c.method == "qsgd" else QUALITY) for c in cases}
    rows = figures.with_labels(summary.summary_rows(done, cases))
    for path in (
        figures.plot_end(rows, "digits_mlp", tmp_path / "end.png"),
        figures.plot_to_quality(rows, "digits_mlp", "iid", tmp_path / "iid.png"),
    ):
        assert path.stat().st_size > 10_000
