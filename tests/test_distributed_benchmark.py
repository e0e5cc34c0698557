"""The distributed benchmark: tables over several seeds, plans of runs, and variants of methods."""

import json
from importlib import import_module
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(autouse=True)
def benchmarks_on_path(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)


def run(rival, seed, loss, sent, seconds, link=0):
    """Return the line of a run."""
    setting = {**dict.fromkeys(import_module("distributed").SETTING, 1), "seed": seed}
    curve = [[2, loss, sent, 2 * sent, seconds, 2 * loss]]
    return json.dumps({**setting, "rival": rival, "link": link, "curve": curve}) + "\n"


def printed(function, file, capsys):
    """Return the rows of the only table that a function prints."""
    entries = import_module("distributed").read_entries(file)
    getattr(import_module("distributed_seeds"), function)(entries)
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")][2:]


def test_means_over_seeds_are_compared_with_dense_runs_of_the_same_seeds(tmp_path, capsys):
    file = tmp_path / "gpt.jsonl"
    file.write_text(
        run("diloco", 0, 2.0, 8_000_000, 1)
        + run("diloco", 1, 4.0, 8_000_000, 1)
        + run("diloco", 2, 90.0, 8_000_000, 1)  # sparseloco has no such seed
        + run("sparseloco", 0, 3.0, 100_000, 1)
        + run("sparseloco", 1, 4.5, 60_000, 1)
        + run("average", 0, 5.0, 8_000_000, 9, link=10)
    )
    assert printed("print_means", file, capsys) == [
        "| diloco | 3 | 32.0000 | 50.2394 | 1.0000 | 8.000 | 1 | 64.0000 | 1.0000 |",
        "| sparseloco | 2 | 3.7500 | 1.0607 | 1.2500 | 0.080 | 100 | 7.5000 | 1.2500 |",
    ]


def test_times_are_compared_with_dense_runs_on_the_same_link(tmp_path, capsys):
    file = tmp_path / "cnn.jsonl"
    times = {("ddp", 0): (2, 2, 4), ("hook_qsgd", 0): (3, 2, 4), ("ddp", 10): (30, 20, 20)}
    file.write_text(
        "".join(
            run(rival, seed, 1.0, 100, seconds, link)
            for (rival, link), of_seeds in times.items()
            for seed, seconds in enumerate(of_seeds)
        )
        + run("hook_qsgd", 0, 1.0, 100, 6, link=10)
    )
    assert printed("print_times", file, capsys) == [
        "| ddp | 3 | 20.0 | 1.00 | 2.0 | 1.00 |",
        "| hook_qsgd | 3 | 6.0 | 0.20 | 3.0 | 1.00 |",
    ]


def test_plans_name_rivals_and_fit_on_the_machine(tmp_path):
    program, suite = import_module("distributed"), import_module("distributed_suite")
    rivals = import_module("distributed_rivals").RIVALS
    for name in suite.PLANS:
        words = ["suite", "--plan", name, "--cores", "16", "--out", str(tmp_path)]
        jobs = suite.planned_jobs(program.parse(words))
        assert jobs, name
        assert all(job.name in rivals for job in jobs), name
        assert all(job.args.ranks <= 16 for job in jobs), name
        tiny = suite.planned_jobs(program.parse([*words, "--tiny"]))
        assert {job.args.steps for job in tiny} == {suite.TINY["steps"]}, name


def test_variants_code_the_parts_that_their_names_say():
    variants = import_module("distributed_variants")
    v = torch.linspace(-1, 1, 10_000)
    density = 0.01
    assert variants.feedback_variant(0.95, density).device.decay == 0.95
    whole = variants.feedback_variant(1.0, density).device.compress(v)
    assert int((whole.decode() != 0).sum()) == pytest.approx(100, abs=2)
    assert whole.decode()[1000:-1000].abs().max() == 0  # the largest of the model, not of a chunk
    server = variants.topk_variant(errors=False, memory=False, density=density).server
    fleet = import_module("aquila.core.fleet").Fleet(10_000, [0, 0])
    scalars = server.orders(server.init(v, fleet), fleet, 0, None)[1][0]
    assert set(scalars) == {"share", "rate"}
    assert scalars["rate"] < 1e-9
    assert variants.VARIANTS["ablation_zero_errors"].server.memory_rate(density) > 1e-9
