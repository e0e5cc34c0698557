"""Benchmarks: every script starts, the ablation runs all variants, and tables are correct."""

import json
import runpy
import sys
from argparse import Namespace
from importlib import import_module
from pathlib import Path

import pytest
import torch

import aquila
from helpers.fake_records import fake_record, write_fake_run
from helpers.problems import ridge

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if "__main__" in path.read_text())


@pytest.fixture(autouse=True)
def benchmarks_on_path(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)


@pytest.fixture
def bytes_to_accuracy(benchmarks_on_path):
    return import_module("bytes_to_accuracy")


@pytest.fixture
def ablation(benchmarks_on_path):
    return import_module("ablation")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:'click:DeprecationWarning")  # an import of flwr
def test_script_imports_and_prints_its_help(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [path.name, "--help"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(path), run_name="__main__")
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {path.name}")


def test_readme_lists_every_script():
    text = (FOLDER / "README.md").read_text()
    assert [path.name for path in SCRIPTS if f"| `{path.name}`" not in text] == []


@pytest.mark.parametrize("method", ["aquila_dither", "aquila_peak", "aquila_topk"])
def test_ablation_runs_every_variant_once(ablation, tmp_path, method):
    experiment = tmp_path / "short.toml"
    text = (ROOT / "experiments" / "bytes_to_accuracy" / "digits_full_non_iid.toml").read_text()
    experiment.write_text(text.replace("rounds = 200", "rounds = 3"))
    variants, out = ablation.VARIANTS[method], tmp_path / "out"
    for _ in range(2):
        ablation.run([experiment], [0], out, variants)
    runs = [json.loads(line) for line in (out / "short.jsonl").read_text().splitlines()]
    assert [run["method"] for run in runs] == ["fedsgd", *variants]
    assert all(run["curve"]["rounds"][-1] == 3 for run in runs)
    assert len({tuple(run["curve"]["uplink_bytes"]) for run in runs}) > len(variants) / 2


def write_runs(folder: Path, **accuracies: float) -> Path:
    for method, accuracy in accuracies.items():
        metrics = {"test_accuracy": accuracy}
        write_fake_run(folder / method, method, [fake_record(n, metrics=metrics) for n in range(4)])
    return folder


def test_no_ratio_to_a_level_that_aquila_misses(bytes_to_accuracy, tmp_path, capsys):
    bytes_to_accuracy.print_both_directions([write_runs(tmp_path, aquila=0.5, laq=0.7)], 0.6)
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| aquila | 0 | not reached | | | | |",
        "| laq | 0 | 3 | 6.29 MB | 3.15 MB | 9.44 MB | - |",
    ]


def test_no_ratios_without_a_run_of_aquila(bytes_to_accuracy, tmp_path, capsys):
    folder = write_runs(tmp_path, laq=0.7)
    bytes_to_accuracy.print_tables([folder], 0.6)
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "| laq | 3 | 3.15 MB | 1.50 KB | - | - | - | 70.0% |"
    )
    with pytest.raises(SystemExit, match="must hold exactly one run of aquila, not 0"):
        bytes_to_accuracy.print_both_directions([folder], 0.6)
    with pytest.raises(SystemExit, match="has no run of aquila to take the level from"):
        bytes_to_accuracy.print_tables([folder], None)


def test_end_of_training_compares_up_to_the_last_common_round(benchmarks_on_path, tmp_path, capsys):
    module = import_module("end_of_training")
    write_fake_run(tmp_path / "task" / "laq", "laq", accuracies_by_round(range(1, 7)))
    write_fake_run(tmp_path / "task" / "fedavg", "fedavg", accuracies_by_round(range(11, 20)))
    for title, runs in module.read_groups(tmp_path).items():
        module.print_table(title, runs)
    laq, dense = capsys.readouterr().out.splitlines()[-1:-3:-1]
    assert laq.startswith("| `laq` | 6 | 4.00% | 14.00% | -10.00 points | 6.29 MB | 1 | 1.0 |")
    assert dense.startswith("| `fedavg` | 9 | 17.00% | 17.00% | +0.00 points | 9.44 MB | 1 | 1.0 |")


def accuracies_by_round(percents):
    return [fake_record(n, metrics={"test_accuracy": p / 100}) for n, p in enumerate(percents)]


def test_end_of_training_needs_a_dense_run(benchmarks_on_path):
    module = import_module("end_of_training")
    with pytest.raises(SystemExit, match="task has no run of fedavg or fedsgd"):
        module.print_table("task", {("laq", 0): {}})


def test_end_of_training_averages_the_seeds_of_a_file(
    benchmarks_on_path, bytes_to_accuracy, tmp_path, capsys
):
    module = import_module("end_of_training")
    for seed, percent in ((0, 50), (1, 60)):
        for method, behind in (("fedsgd", 0), ("variant", 10 * seed)):
            records = accuracies_by_round([percent - behind] * 5)
            bytes_to_accuracy.append_run(tmp_path / "task.jsonl", method, seed, records)
    ((title, runs),) = module.read_groups(tmp_path).items()
    module.print_table(title, runs)
    row = capsys.readouterr().out.splitlines()[-1]
    assert row == "| `variant` | 5 | 50.00% | 55.00% | -5.00 points | 5.24 MB | 1 | - |"


def test_end_of_training_joins_tables_of_shared_methods(
    benchmarks_on_path, bytes_to_accuracy, tmp_path, capsys
):
    module = import_module("end_of_training")
    for task, methods in (("a", ("fedavg", "variant")), ("b", ("fedsgd", "variant"))):
        for percent, method in zip((50, 40), methods, strict=True):
            records = accuracies_by_round([percent] * 5)
            bytes_to_accuracy.append_run(tmp_path / f"{task}.jsonl", method, 0, records)
    module.print_side_by_side(module.read_groups(tmp_path))
    row = "5 | 40.00% | 50.00% | -10.00 points | 5.24 MB | 1 | - |"
    assert capsys.readouterr().out.splitlines()[5:] == [f"| `variant` | {row} {row}"]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["t.max:s", "x"], ["3 s | a", "5 s | a", "7 s | b"]),
        (["t.sum/2", "--by", "x"], ["a | 5.5", "b | 3.5"]),
        (["t.argmax", "n:%", "--where", "x=b"], ["1 | 50 %"]),
        (["t.each", "--by", "x", "--across", "y"], ["a | 1 3 2 | 5", "b | 7"]),
        (["missing"], ["-", "-", "-"]),
    ],
)
def test_rows_of_results_are_printed(
    benchmarks_on_path, tmp_path, capsys, monkeypatch, words, lines
):
    rows = [
        {"x": "a", "y": 1, "t": [1, 3, 2], "n": 1},
        {"x": "a", "y": 2, "t": [5], "n": None},
        {"x": "b", "y": 1, "t": [7], "n": 0.5},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(sys, "argv", ["results_rows.py", str(path), *words])
    import_module("results_rows").main()
    assert capsys.readouterr().out.splitlines() == lines


def test_robustness_replaces_the_lines_of_the_given_methods_only(
    benchmarks_on_path, tmp_path, capsys, monkeypatch
):
    module = import_module("robustness")
    path, case = tmp_path / "robustness.jsonl", ("50", 2, "iid", 0.1, 1.0, 0.0)
    monkeypatch.setattr(module, "cases", lambda: [case])
    ends = {"fedsgd": (0.9, 100.0), "laq": (0.895, 10.0), "aquila_topk": (None, None)}
    monkeypatch.setattr(module, "run_method", lambda problem, method, *_: ends[method])
    module.run(path, list(ends))
    ends |= {"aquila_topk": (0.88, 5.0), "laq": (0.0, 0.0)}
    module.run(path, ["aquila_topk"])
    capsys.readouterr()
    module.print_table(path)
    rows = capsys.readouterr().out.splitlines()[2:4]
    assert rows == [
        "| aquila_topk | 0 of 1 | 1 | 2.0 | 0 | 1 / 20 |",
        "| laq | 1 of 1 | 0 | 0.5 | 0 | 1 / 10 |",
    ]


def test_attacks_are_compared_with_the_honest_run_of_their_seed(tmp_path, capsys, monkeypatch):
    module, path = import_module("attacks"), tmp_path / "attacks.jsonl"
    monkeypatch.setattr(module, "KINDS", {"honest": (), "sign": ("sign",)})
    ends = {("honest", 0): 0.9, ("sign", 0): 0.85, ("honest", 1): 0.8, ("sign", 1): 0.79}
    monkeypatch.setattr(module, "accuracy", lambda method, *case: ends.pop(case[:2]))
    module.run(path, ["laq"], 1, 0.1)
    module.run(path, ["laq"], 2, 0.1)  # runs seed 1 only
    capsys.readouterr()
    module.print_table(path)
    assert capsys.readouterr().out.splitlines()[2:] == ["| 2 | `laq` | 85.0 | 82.0 | 5.0 |"]


def distributed_run(rival: str, link: float, loss: float, sent: int, seconds: float) -> str:
    setting = dict.fromkeys(import_module("distributed").SETTING, 1)
    curve = [[1, 2.0, 1, 1, 1.0, 2.0], [2, loss, sent, 2 * sent, seconds, 0.7]]
    return json.dumps({**setting, "rival": rival, "link": link, "curve": curve}) + "\n"


def test_distributed_table_has_measured_and_computed_times(tmp_path, capsys):
    file = tmp_path / "cnn.jsonl"
    file.write_text(
        distributed_run("diloco", 0, 0.5, 10_000_000, 20.0)
        + distributed_run("sparseloco", 0, 0.6, 100_000, 21.0)
        + distributed_run("diloco", 10, 0.5, 10_000_000, 37.0)
    )
    import_module("distributed").table(Namespace(file=file))
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "| diloco | 0.5000 | 1 | 10.000 | 1 | 20 | 37 | *22* | *20* | 0.7000 |",
        "| sparseloco | 0.6000 | 1.2 | 0.100 | 100 | 21 | *21* | *21* | *21* | 0.7000 |",
    ]


def test_distributed_figure_uses_measured_links_and_runs_of_ddp(tmp_path):
    entries = [
        json.loads(line)
        for line in (
            distributed_run("diloco", 0, 0.5, 10_000_000, 20.0),
            distributed_run("diloco", 10, 0.5, 10_000_000, 37.0),
            distributed_run("ddp", 0, 0.4, 90_000_000, 30.0),
        )
    ]
    entries[2]["every"] = 50
    figures = import_module("distributed_figures")
    runs = figures.select(entries, {"every": 1})
    assert [run["rival"] for run in runs] == ["diloco", "diloco", "ddp"]
    assert figures.curve_on_link(runs[0], 10, runs)[-1] == (37.0, 0.5)
    assert figures.curve_on_link(runs[0], 100, runs)[-1] == (21.6, 0.5)
    path = figures.draw(entries, tmp_path / "figure.svg", {})
    assert path.read_text().count("seconds") >= 4
    with pytest.raises(SystemExit, match="no run with"):
        figures.select(entries, {"every": 7})


def test_distributed_jobs_end_within_their_limits(tmp_path, capsys, monkeypatch):
    program, jobs = import_module("distributed"), import_module("distributed_jobs")
    arguments = ["run", "--task", "digits", "--steps", "4", "--every", "2", "--out", str(tmp_path)]
    rivals = "outer_unsent_300,ddp"
    monkeypatch.setattr(sys, "argv", ["distributed.py", *arguments, "--rivals", rivals])
    program.main()
    done = [json.loads(line) for line in (tmp_path / "digits.jsonl").read_text().splitlines()]
    assert [entry["rival"] for entry in done] == rivals.split(",")
    capsys.readouterr()
    program.main()
    assert capsys.readouterr().out == ""  # both runs are in the file
    settings = program.parse(["run", *arguments[1:], "--ranks", "3"])
    slow = jobs.Job("diloco", settings, limit=0.0)
    wrong = jobs.Job("no such rival", settings, limit=60.0)
    assert jobs.run_jobs([slow, wrong], cores=3) == [slow, wrong]
    out = capsys.readouterr().out
    assert "diloco: no result, stopped after 0 s" in out
    assert "no such rival: no result, a rank failed" in out
    assert all(rank.exitcode is not None for job in (slow, wrong) for rank in job.ranks)


def test_bytes_of_relayed_uploads_are_those_of_a_run(benchmarks_on_path):
    relayed_uploads, problem = import_module("relayed_uploads"), ridge(devices=3, dimension=300)
    method = aquila.create("aquila_peak", alpha=1e-3, memory="none", density=0.02)
    theta = torch.linspace(-1, 1, 300)
    whole, relayed = (
        aquila.simulate(
            method, theta, problem.devices, 6, options=aquila.RunOptions(relay_uploads=relays)
        )
        for relays in (False, True)
    )
    assert [r.uplink for r in whole.records] == [r.uplink for r in relayed.records]
    expected = sum(record.downlink_bytes for record in relayed.records)
    assert relayed_uploads.relayed_downlink(whole.records, 300, 3) == expected
