"""The facts of the package: made from the committed results, complete and readable."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from aquila.advice.facts import parse_facts, read_facts
from aquila.methods import METHODS

ROOT = Path(__file__).parents[2]
SHARED = {
    "task": "digits_mlp", "model": "mlp", "parameters": 100, "devices": 10, "split": "iid",
    "work": "gradient", "preset": None, "diverged": False, "dense_method": "fedsgd",
}  # fmt: skip


@pytest.fixture
def advice_facts(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return import_module("advice_facts")


def row(method, seed, quality, uplink, **changed):
    return {
        **SHARED,
        "method": method,
        "options": {"alpha": 0.5, "work": "gradient"},
        "seed": seed,
        "rounds": 20,
        "quality_end": quality,
        "dense_quality_end": 0.9,
        "uplink_bytes": uplink,
        "downlink_bytes": 80_000,
        "bytes_to_quality": {"level": 0.873, "uplink_bytes": 1, "rounds": 10},
        "links": {"lte": {"seconds": 40.0, "joules": 600.0}},
        **changed,
    }


def test_file_is_up_to_date(advice_facts):
    made = advice_facts.facts_text(advice_facts.make_facts())
    assert advice_facts.FACTS.read_text() == made, "run python benchmarks/advice_facts.py"


def test_page_is_up_to_date(advice_facts):
    text = advice_facts.PAGE.read_text()
    assert advice_facts.updated_page(text) == text, "run python benchmarks/advice_facts.py"
    assert text.count("Arithmetic: ") == text.count("| comparison |") == 1


def test_file_names_known_methods():
    facts = read_facts()
    assert len(facts.studies) >= 3
    for study in facts.studies:
        assert study.dense in METHODS
        assert {result.method for result in study.runs} <= set(METHODS)
        for result in study.runs:
            METHODS[result.method](**result.options)
        assert study.find(study.dense).gap == pytest.approx(0, abs=1e-9)


def test_rows_of_the_summary_become_means_over_the_seeds(advice_facts, tmp_path):
    rows = [
        *(row("fedsgd", seed, 0.9, 80_000) for seed in (0, 1)),
        row("laq", 0, 0.91, 4_000, options={"alpha": 0.25, "bits": 8}),
        row("laq", 1, 0.88, 6_000, options={"alpha": 0.25, "bits": 8}),
        row("qsgd", 0, 0.8, 1_000, rounds=5, diverged=True),
        row("topk", 0, None, 0, rounds=0, diverged=True),
    ]
    path = tmp_path / "summary.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    studies = advice_facts.choosing_studies(path)
    facts = parse_facts({"studies": studies, "coded_downlink": [], "sizes": {}})
    (study,) = facts.studies
    assert (study.task, study.rounds, study.dense) == ("digits", 20, "fedsgd")
    assert (study.dense_quality, study.level) == (0.9, pytest.approx(0.97))
    found = study.find("laq:bits=8")
    assert (found.seeds, found.alpha, found.alpha_factor) == (2, 0.25, 0.5)
    assert (found.up, found.down) == (0.25, 4.0)  # 5,000 and 80,000 in 20 rounds x 10 x 100
    assert found.gap == pytest.approx(-0.005)
    assert found.rounds_to_quality == 10
    assert found.links == {"lte": [2.0, 3.0]}
    assert [study.find(name).gap for name in ("qsgd", "topk")] == [pytest.approx(-0.9)] * 2
